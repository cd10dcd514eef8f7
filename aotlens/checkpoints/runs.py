"""A training run as models: its snapshots by step, ours or those that others saved in a folder for each step; and a run
copied with its snapshots rounded, small enough to be passed on."""

from __future__ import annotations

import re
import shutil
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aotlens.checkpoints.catalog import find_checkpoint, load
from aotlens.checkpoints.layout import CheckpointError, is_checkpoint, is_taken
from aotlens.checkpoints.rounding import rounded
from aotlens.checkpoints.snapshots import (
    about_snapshot,
    read_snapshot,
    require_step,
    snapshot_file,
    snapshot_steps,
    snapshots_folder,
    write_snapshot,
)
from aotlens.conventions import Progress, require_between
from aotlens.files import contents_hash

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from aotlens.models import AttentionOnlyTransformer


#: Names of folders in which others keep a model of a step: Pythia's, Timaeus's, and those of Hugging Face's trainer.
_STEP_FOLDER = re.compile(r"(?:step|checkpoint)[-_]?([0-9]{1,12})", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Run:
    """The models of a training run: `run[step]`, and `run.at(tokens_seen)` where it says how many tokens it saw."""

    name: str
    folder: Path
    """The checkpoint that the run trained, or the folder that holds a folder for each step."""
    steps: tuple[int, ...]
    """The steps of which there are weights, in order."""
    is_external: bool = False
    """Whether each step is a folder, or a revision on the Hugging Face hub, that another program wrote."""
    revisions: Mapping[int, str] | None = None
    """The revision of each step, of `name`, a repository on the hub; None for a folder."""
    device: str | torch.device = "auto"
    """The device of the models."""

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[AttentionOnlyTransformer]:
        return (self[step] for step in self.steps)

    def __getitem__(self, step: int) -> AttentionOnlyTransformer:
        """The model after `step` updates. Raises CheckpointError, with the nearest steps, where there is none."""
        return load(self.source(step), self.device)

    def source(self, step: int) -> Path | str:
        """Return what `aotlens.load` takes for the model of that step. Raises CheckpointError where there is none."""
        if self.revisions is not None:
            if step not in self.revisions:
                raise CheckpointError(f"{self.name}: expected one of the steps {self.steps}, got {step}.")
            return f"{self.name}@{self.revisions[step]}"
        if not self.is_external:
            require_step(self.folder, step)
            return self.folder.with_name(f"{self.folder.name}@{step}")
        folders = _step_folders(self.folder)
        if step not in folders:
            raise CheckpointError(f"{self.folder}: expected one of the steps {self.steps}, got {step}.")
        return folders[step]

    def tokens(self, step: int) -> int:
        """Count the training tokens seen by the model of that step. Raises CheckpointError where nobody says it."""
        if self.is_external:
            raise CheckpointError(f"{self.folder}: says no tokens of its steps. Take a step: run[{step}].")
        return about_snapshot(self.folder, step)[0]

    def at(self, tokens_seen: int) -> AttentionOnlyTransformer:
        """Return the last model that had seen at most so many training tokens. Raises CheckpointError where there is
        none."""
        place = bisect_right(self.steps, tokens_seen, key=self.tokens)
        if place == 0:
            raise CheckpointError(
                f"{self.name}: expected at least the {self.tokens(self.steps[0]):,} tokens of the first snapshot, got "
                f"{tokens_seen:,}."
            )
        return self[self.steps[place - 1]]


def load_run(folder: str | Path, device: str | torch.device = "auto") -> Run:
    """Return the run that trained a checkpoint, by its name or folder, or a folder that others filled by step.

    The latter holds a folder a step (`step1000/`, `checkpoint-1000/`), each of which `aotlens.load` opens.
    `hf:OWNER/NAME` is a repository whose branches or tags are steps, as Pythia's; each is downloaded when it is loaded.
    Raises CheckpointError for a checkpoint without snapshots and for a folder or a repository without steps.
    """
    if str(folder).startswith("hf:"):
        return _of_hub(str(folder), device)
    path = Path(folder).expanduser()
    if path.is_dir() and not is_checkpoint(path) and (steps := _step_folders(path)):
        name = path.resolve().name
        return Run(name=name, folder=path, steps=tuple(sorted(steps)), is_external=True, device=device)
    info = find_checkpoint(folder)
    if info.problem is not None or info.path is None:
        raise CheckpointError(info.problem or f"{folder}: expected a folder on this disk.")
    known = snapshot_steps(info.path)
    if not known:
        require_step(info.path, 0)
    return Run(name=info.name, folder=info.path, steps=tuple(known), device=device)


def _of_hub(name: str, device: str | torch.device) -> Run:
    from aotlens.interop.external.hub import step_revisions

    try:
        revisions = step_revisions(name.removeprefix("hf:"))
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    if not revisions:
        raise CheckpointError(f"{name}: expected branches or tags named step1000 or checkpoint-1000, found none.")
    return Run(
        name=name,
        folder=Path(name),
        steps=tuple(sorted(revisions)),
        is_external=True,
        revisions=revisions,
        device=device,
    )


def _step_folders(folder: Path) -> dict[int, Path]:
    matches = {path: _STEP_FOLDER.fullmatch(path.name) for path in folder.iterdir() if path.is_dir()}
    return {int(match[1]): path for path, match in matches.items() if match}


@dataclass(frozen=True, kw_only=True)
class CompressedRun:
    """A run whose snapshots were rounded."""

    folder: Path
    error: float
    """The rounding error of a tensor's weights, as a share of their root mean square by default."""
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
    of them by default.

    Raises `CheckpointError` for a run without snapshots, a step that it lacks, snapshots of other tensors than the
    model's, and an `out` that exists; `ValueError` for an error that is not between 0 and .5 and for an unknown
    tensor. Nothing is left of `out` then, nor by a stop on the way.
    """
    checkpoint, out, own = Path(checkpoint), Path(out), dict(errors or {})
    for share in (error, *own.values()):
        require_between("error", share, above=0, most=0.5)
    available = snapshot_steps(checkpoint)
    if not available or not is_checkpoint(checkpoint):
        raise CheckpointError(f"{checkpoint}: expected a checkpoint with snapshots of its run, found none.")
    copied = available if steps is None else sorted({*steps})
    for step in copied:
        require_step(checkpoint, step)
    names = list(read_snapshot(checkpoint, available[0]).tensors)
    if unknown := sorted(set(own) - set(names)):
        raise ValueError(f"errors: expected names of tensors, got {unknown[0]!r}; available are {', '.join(names)}.")
    if existing := [path for path in (out, snapshots_folder(out)) if is_taken(path)]:
        raise CheckpointError(f"{existing[0]} exists already; choose another folder, or remove it.")
    by_tensor = {name: own.get(name, error) for name in names}
    last: Mapping[str, Tensor] = {}
    try:
        shutil.copytree(checkpoint, out)
        for place, step in enumerate(copied):
            snapshot = read_snapshot(checkpoint, step)
            stored, last = rounded(snapshot.tensors, last, by_tensor)
            write_snapshot(
                out, step, stored, tokens=snapshot.tokens, base=copied[place - 1] if place else None,
                sha256=contents_hash(last, {}), rounding_error=max(by_tensor.values()),
            )  # fmt: skip
            if progress is not None:
                progress(place + 1, len(copied))
    except BaseException:
        for unfinished in (out, snapshots_folder(out)):
            shutil.rmtree(unfinished, ignore_errors=True)
        raise
    before, after = (sum(snapshot_file(run, step).stat().st_size for step in copied) for run in (checkpoint, out))
    return CompressedRun(folder=out, error=error, n_snapshots=len(copied), bytes_before=before, bytes_after=after)
