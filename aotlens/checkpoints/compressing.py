"""A run copied with its snapshots rounded: a film that is small enough to be passed on."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aotlens.checkpoints.errors import CheckpointError
from aotlens.checkpoints.layout import is_checkpoint, is_taken
from aotlens.checkpoints.rounding import rounded
from aotlens.checkpoints.snapshots import read_snapshot, snapshot_file, snapshot_steps, snapshots_folder
from aotlens.conventions import Progress
from aotlens.files import contents_hash, write_record

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class CompressedRun:
    """A run whose snapshots were rounded."""

    folder: Path
    error: float
    """By how much rounding moved the weights of a tensor, as a share of their root mean square."""
    n_snapshots: int
    bytes_before: int
    bytes_after: int
    """Of the snapshots' files."""


def compress_run(
    checkpoint: Path, out: Path, *, error: float = 0.05, progress: Progress | None = None
) -> CompressedRun:
    """Copy a checkpoint with its snapshots to `out`, the snapshots' weights rounded, the checkpoint's own as they are.

    `error` is the root mean square of what rounding adds to a tensor's weights, as a share of theirs: a larger one
    takes less room (about log₂ of it in bits a weight) and costs more of the loss, which is to be measured. Raises
    `CheckpointError` for a run without snapshots and an `out` that exists, `ValueError` for an error that is not
    between 0 and .5.
    """
    if not 0 < error <= 0.5:
        raise ValueError(f"error={error}: expected a share of the weights above 0 and at most 0.5.")
    steps = snapshot_steps(checkpoint)
    if not steps or not is_checkpoint(checkpoint):
        raise CheckpointError(f"{checkpoint}: expected a checkpoint with snapshots of its run, found none.")
    if taken := [path for path in (out, snapshots_folder(out)) if is_taken(path)]:
        raise CheckpointError(f"{taken[0]} exists already; choose another folder, or remove it.")
    shutil.copytree(checkpoint, out)
    last: Mapping[str, Tensor] = {}
    for place, step in enumerate(steps):
        snapshot = read_snapshot(checkpoint, step)
        stored, last = rounded(snapshot.tensors, last, error)
        about = {
            "schema_version": 1,
            "step": step,
            "tokens": snapshot.tokens,
            "base": steps[place - 1] if place else None,
            "sha256": contents_hash(last, {}),
            "rounding_error": error,
        }
        write_record(snapshot_file(out, step), "snapshot", stored, about)
        if progress is not None:
            progress(place + 1, len(steps))
    before, after = (sum(snapshot_file(run, step).stat().st_size for step in steps) for run in (checkpoint, out))
    return CompressedRun(folder=out, error=error, n_snapshots=len(steps), bytes_before=before, bytes_after=after)
