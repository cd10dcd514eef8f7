"""A run copied with its snapshots rounded: a film that is small enough to be passed on."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aotlens.checkpoints.errors import CheckpointError
from aotlens.checkpoints.layout import is_checkpoint, is_taken
from aotlens.checkpoints.rounding import rounded
from aotlens.checkpoints.snapshots import (
    read_snapshot,
    require_step,
    snapshot_file,
    snapshot_steps,
    snapshots_folder,
    write_snapshot,
)
from aotlens.conventions import Progress
from aotlens.files import contents_hash

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class CompressedRun:
    """A run whose snapshots were rounded."""

    folder: Path
    error: float
    """The rounding error of a tensor's weights, as a share of their root mean square, unless told otherwise."""
    n_snapshots: int
    bytes_before: int
    bytes_after: int
    """The size of the snapshots' files afterwards."""


def compress_run(
    checkpoint: str | Path,
    out: str | Path,
    *,
    error: float = 0.05,
    errors: Mapping[str, float] | None = None,
    steps: Iterable[int] | None = None,
    progress: Progress | None = None,
) -> CompressedRun:
    """Copy a checkpoint with its snapshots to `out`, the snapshots' weights rounded, the checkpoint's own as they are.

    `error` is the root mean square of what rounding adds to a tensor's weights, as a share of theirs: one twice as
    large takes about a bit a weight less and costs more of the loss, which is to be measured. `errors` are other ones
    for tensors by their names, such as `embed.W_E`, of which most costs least; `steps` are the snapshots to copy, all
    of them unless told.

    Raises `CheckpointError` for a run without snapshots, a step that it lacks, snapshots of other tensors than the
    model's, and an `out` that exists; `ValueError` for an error that is not between 0 and .5 and for an unknown
    tensor. Nothing is left of `out` then, nor by a stop on the way.
    """
    checkpoint, out, own = Path(checkpoint), Path(out), dict(errors or {})
    for each in (error, *own.values()):
        if not 0 < each <= 0.5:
            raise ValueError(f"error={each}: expected a share of the weights above 0 and at most 0.5.")
    there = snapshot_steps(checkpoint)
    if not there or not is_checkpoint(checkpoint):
        raise CheckpointError(f"{checkpoint}: expected a checkpoint with snapshots of its run, found none.")
    chosen = there if steps is None else sorted({*steps})
    for step in chosen:
        require_step(checkpoint, step)
    names = list(read_snapshot(checkpoint, there[0]).tensors)
    if unknown := sorted(set(own) - set(names)):
        raise ValueError(f"errors: expected names of tensors, got {unknown[0]!r}; there are {', '.join(names)}.")
    if taken := [path for path in (out, snapshots_folder(out)) if is_taken(path)]:
        raise CheckpointError(f"{taken[0]} exists already; choose another folder, or remove it.")
    by_tensor = {name: own.get(name, error) for name in names}
    last: Mapping[str, Tensor] = {}
    try:
        shutil.copytree(checkpoint, out)
        for place, step in enumerate(chosen):
            snapshot = read_snapshot(checkpoint, step)
            stored, last = rounded(snapshot.tensors, last, by_tensor)
            write_snapshot(
                out, step, stored, tokens=snapshot.tokens, base=chosen[place - 1] if place else None,
                sha256=contents_hash(last, {}), rounding_error=max(by_tensor.values()),
            )  # fmt: skip
            if progress is not None:
                progress(place + 1, len(chosen))
    except BaseException:
        for unfinished in (out, snapshots_folder(out)):
            shutil.rmtree(unfinished, ignore_errors=True)
        raise
    before, after = (sum(snapshot_file(run, step).stat().st_size for step in chosen) for run in (checkpoint, out))
    return CompressedRun(folder=out, error=error, n_snapshots=len(chosen), bytes_before=before, bytes_after=after)
