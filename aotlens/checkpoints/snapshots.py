"""Snapshots of a training run: the weights at moments of it, in NAME.snapshots/ beside its checkpoint NAME.

    step-000000000.safetensors    all weights, as they are
    step-000000001.safetensors    what differs from the snapshot before it, compressed, where that is smaller

Floats are compared as whole numbers: two weights of one sign that are near each other have bit patterns that are near,
so that their difference, made positive (zigzag), is small and its upper bytes are mostly zeros, which compress. It is
exact modulo 2³², and with it so is the weight. Every tenth snapshot is stored whole, so that one is read from ten files
at most. Each file is written whole or not at all, and holds the SHA-256 of the weights that it restores. Snapshots of a
run that was compressed hold differences in steps instead (`aotlens.checkpoints.rounding`), from the first one on.
"""

from __future__ import annotations

import lzma
import math
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aotlens.checkpoints.checks import COUNTS
from aotlens.checkpoints.header import read_header
from aotlens.checkpoints.layout import WEIGHTS, CheckpointError, locate
from aotlens.checkpoints.rounding import ROUNDED, unpacked
from aotlens.files import contents_hash, read_metadata, read_record, write_record
from aotlens.untrusted import excerpt

if TYPE_CHECKING:
    from torch import Tensor

#: The number of snapshots after which one is stored whole.
WHOLE_EVERY = 10
#: The largest number of files that a snapshot is read from.
_MOST_FILES = 1000
_VERSION, _KIND = 1, "snapshot"
_FILE = re.compile(r"step-(\d{9})\.safetensors", re.ASCII)
_DIFFERENCE = "difference of "
#: The most bytes of a stored tensor: those of its widest elements, and the lengths of their parts.
_MOST_ITEM_BYTES, _SPARE_BYTES = 8, 1024
#: Signed whole numbers of the width of a float.
_AS_INTEGERS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}

#: The shapes of a model's tensors by name.
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The weights of a run after `step` updates."""

    step: int
    tokens: int
    """Training tokens seen, or what else the run's objective counts."""
    sha256: str
    """The hash of the weights."""
    rounding_error: float
    """The largest rounding error of a tensor's weights, as a share of their root mean square; 0: they are exact."""
    tensors: Mapping[str, Tensor]
    """The model's state dict, on the CPU."""


def snapshots_folder(checkpoint: Path) -> Path:
    """Return the folder of the snapshots of the run that trains `checkpoint`."""
    return checkpoint.with_name(f"{checkpoint.name}.snapshots")


def snapshot_steps(checkpoint: Path) -> list[int]:
    """Return the steps of which there are snapshots, in order; none where the run kept none."""
    try:
        names = [path.name for path in snapshots_folder(checkpoint).iterdir()]
    except OSError:
        return []
    return sorted(int(match[1]) for match in map(_FILE.fullmatch, names) if match)


def split_step(path: Path) -> tuple[Path, int | None]:
    """Return the checkpoint and the step that NAME@STEP names; None for a path without a step, or a folder of that
    name."""
    name, _, step = path.name.rpartition("@")
    if not name or not re.fullmatch(r"[0-9]{1,9}", step, re.ASCII) or path.exists():
        return path, None
    return path.with_name(name), int(step)


def snapshot_file(checkpoint: Path, step: int) -> Path:
    """Return the file of that step's snapshot."""
    return snapshots_folder(checkpoint) / f"step-{step:09d}.safetensors"


def write_snapshot(
    checkpoint: Path,
    step: int,
    stored: Mapping[str, Tensor],
    *,
    tokens: int,
    base: int | None,
    sha256: str,
    rounding_error: float = 0.0,
) -> None:
    """Write the file of a step: what is `stored` of it, from which step it is a difference, and the SHA-256 of the
    weights that it restores. Raises CheckpointError for a disk that does not take it."""
    about: dict[str, Any] = {"schema_version": _VERSION, "step": step, "tokens": tokens, "base": base}
    about["sha256"] = sha256
    about |= {"rounding_error": rounding_error} if rounding_error else {}
    try:
        write_record(snapshot_file(checkpoint, step), _KIND, stored, about)
    except OSError as error:
        raise CheckpointError(f"the snapshot of step {step} could not be written: {error}") from error


class SnapshotWriter:
    """Adds snapshots to a run's folder, each as a difference from the one before it where that is smaller."""

    def __init__(self, checkpoint: Path, step: int) -> None:
        """Go on at `step`: snapshots of later steps, which a killed run has left, go, and its unfinished file."""
        self._checkpoint = checkpoint
        for late in reversed([saved for saved in snapshot_steps(checkpoint) if saved > step]):
            snapshot_file(checkpoint, late).unlink()
        folder = snapshots_folder(checkpoint)
        for unfinished in folder.glob(".step-*.tmp") if folder.is_dir() else ():
            unfinished.unlink()
        steps = snapshot_steps(checkpoint)
        self._last = read_snapshot(checkpoint, steps[-1]) if steps else None
        self._since_whole = _length_of_chain(checkpoint, steps[-1]) if steps else 0

    def add(self, step: int, tokens: int, state: Mapping[str, Tensor]) -> None:
        """Store the weights `state` of a later step. Raises CheckpointError for a disk that does not take them."""
        if self._last is not None and step <= self._last.step:
            return
        tensors = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in state.items()}
        sha256 = contents_hash(tensors, {})
        stored: Mapping[str, Tensor] = tensors
        if self._last is not None and self._since_whole + 1 < WHOLE_EVERY:
            stored = _differences(tensors, self._last.tensors)
        is_whole = all(name in tensors for name in stored)
        base = None if is_whole or self._last is None else self._last.step
        write_snapshot(self._checkpoint, step, stored, tokens=tokens, base=base, sha256=sha256)
        self._since_whole = 0 if is_whole else self._since_whole + 1
        self._last = Snapshot(step=step, tokens=tokens, sha256=sha256, rounding_error=0.0, tensors=tensors)


def require_step(checkpoint: Path, step: int) -> None:
    """Raise CheckpointError, naming the steps that there are, for one of which the run has no snapshot."""
    steps = snapshot_steps(checkpoint)
    if not steps:
        raise CheckpointError(
            f"{checkpoint.name}@{step}: expected snapshots of the run, found none in "
            f'{snapshots_folder(checkpoint).name}/. Train it with snapshots = "log:60" in its recipe.'
        )
    if step not in steps:
        near = sorted(sorted(steps, key=lambda saved: abs(saved - step))[:4])
        raise CheckpointError(
            f"{checkpoint.name}@{step}: expected one of the {len(steps)} steps from {steps[0]} to {steps[-1]} of which "
            f"there are snapshots, got {step}. The nearest are {', '.join(map(str, near))}."
        )


def read_snapshot(checkpoint: Path, step: int, shapes: Shapes | None = None) -> Snapshot:
    """Return the snapshot of that step, bit for bit. Raises CheckpointError for one that is missing or damaged.

    `shapes` are those of the model's tensors by name, read off the checkpoint's weights by default. A file that holds
    others is refused before any of it is unpacked: a few kilobytes can claim gigabytes.
    """
    require_step(checkpoint, step)
    if shapes is None:
        shapes = _saved_shapes(checkpoint)
    chain: list[tuple[dict[str, Tensor], dict[str, Any]]] = []
    wanted: int | None = step
    restored: Mapping[str, Tensor] = {}
    while wanted is not None:
        if (recent := _recent.get(_identity(checkpoint, wanted))) is not None:
            restored = recent
            break
        _read(checkpoint, wanted, weights=False)
        _check_tensors(snapshot_file(checkpoint, wanted), shapes)
        tensors, about = _read(checkpoint, wanted)
        chain.append((tensors, about))
        base = about["base"]
        if base is not None and (base >= wanted or len(chain) >= _MOST_FILES):
            raise _damaged(snapshot_file(checkpoint, wanted), f"a difference from step {base}")
        wanted = base
    for tensors, about in reversed(chain):
        try:
            restored = {(own := _own(name)): _restored(name, tensor, restored.get(own), shapes)
                        for name, tensor in tensors.items()}  # fmt: skip
        except _UNREADABLE as error:
            raise _damaged(
                snapshot_file(checkpoint, about["step"]), f"a difference that leads nowhere ({error})"
            ) from error
    if not chain:
        about = _read(checkpoint, step, weights=False)[1]
    elif contents_hash(restored, {}) != (about := chain[0][1])["sha256"]:
        raise _damaged(snapshot_file(checkpoint, step), "other weights than were saved")
    _keep(_identity(checkpoint, step), restored)
    return Snapshot(
        step=step,
        tokens=about["tokens"],
        sha256=about["sha256"],
        rounding_error=float(about.get("rounding_error", 0.0)),
        tensors=dict(restored),
    )


#: The exceptions of damaged differences; bytes of another type of numbers are a TypeError of PyTorch's.
_UNREADABLE = (
    KeyError, TypeError, ValueError, RuntimeError, MemoryError, struct.error, zlib.error, lzma.LZMAError
)  # fmt: skip
#: The weights of the snapshots that were read last, by their files: the next is mostly a difference from one of them.
_recent: dict[tuple[str, int, int], Mapping[str, Tensor]] = {}
_N_RECENT = 2
#: Bytes of weights that are kept so, at most; of larger models each is read from its whole chain.
_MOST_RECENT_BYTES = 2**27


def _identity(checkpoint: Path, step: int) -> tuple[str, int, int]:
    path = snapshot_file(checkpoint, step)
    try:
        status = path.stat()
    except OSError:
        return str(path), 0, 0
    return str(path), status.st_mtime_ns, status.st_size


def _keep(identity: tuple[str, int, int], tensors: Mapping[str, Tensor]) -> None:
    if sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) > _MOST_RECENT_BYTES:
        return
    _recent.pop(identity, None)
    _recent[identity] = tensors
    for oldest in list(_recent)[:-_N_RECENT]:
        _recent.pop(oldest, None)


def about_snapshot(checkpoint: Path, step: int) -> tuple[int, str]:
    """Return the tokens that the run had seen at that snapshot and the SHA-256 of its weights, which are not restored.
    Raises CheckpointError."""
    require_step(checkpoint, step)
    about = _read(checkpoint, step, weights=False)[1]
    return about["tokens"], about["sha256"]


def _read(checkpoint: Path, step: int, *, weights: bool = True) -> tuple[dict[str, Tensor], dict[str, Any]]:
    path, what = snapshot_file(checkpoint, step), "a snapshot of a run"
    try:
        if weights:
            tensors, about = read_record(path, _KIND, what, _VERSION, "train the run")
        else:
            tensors, about = {}, read_metadata(path, what).get(_KIND, {})
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    match about:
        case {
            "schema_version": int(version),
            "step": int(saved_step),
            "tokens": int(tokens),
            "base": int() | None,
            "sha256": str(),
        }:
            rounding = about.get("rounding_error", 0.0)
            fits = tokens >= 0 and isinstance(rounding, int | float) and 0 <= rounding <= 1
            if (version, saved_step) == (_VERSION, step) and fits:
                return tensors, about
    raise _damaged(path, "a file of something else, or of another version")


def _length_of_chain(checkpoint: Path, step: int) -> int:
    """Count the files from the snapshot of `step` to the whole snapshot that it is restored from, this one included."""
    length, base = 0, _read(checkpoint, step, weights=False)[1]["base"]
    while base is not None:
        length, base = length + 1, _read(checkpoint, base, weights=False)[1]["base"]
    return length


def _differences(tensors: Mapping[str, Tensor], base: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each tensor as its difference from that of `base`, or as it is where that is not larger."""
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        packed = _packed(tensor, base[name])
        smaller = packed.numel() < tensor.numel() * tensor.element_size()
        stored[f"{_DIFFERENCE}{name}" if smaller else name] = packed if smaller else tensor
    return stored


def _packed(tensor: Tensor, base: Tensor) -> Tensor:
    """The difference of two tensors as bytes: for each place of a byte, length and compressed bytes."""
    import torch

    width = tensor.element_size()
    kind = getattr(torch, _AS_INTEGERS[width])
    difference = tensor.reshape(-1).view(kind) - base.reshape(-1).view(kind)
    if width > 1:
        difference = (difference << 1) ^ (difference >> (8 * width - 1))
    planes = difference.view(torch.uint8).reshape(-1, width).T.contiguous().numpy()
    parts = []
    for plane in planes:
        raw = plane.tobytes()
        # Of the lower bytes nothing can be saved, which a beginning of them shows in a fraction of the time.
        is_noise = len(raw) > 1 << 16 and len(zlib.compress(raw[: 1 << 14], 1)) > 0.97 * (1 << 14)
        data = raw if is_noise else min(raw, zlib.compress(raw, 1), key=len)
        parts += [len(data).to_bytes(8, "little"), data]
    return torch.frombuffer(bytearray(b"".join(parts)), dtype=torch.uint8)


def _saved_shapes(checkpoint: Path) -> Shapes | None:
    """The shapes of the tensors of the checkpoint that the run trains; None until it has been saved."""
    weights = locate(checkpoint, WEIGHTS)
    if not weights.exists():
        return None
    header = read_header(weights, checkpoint)
    return {name: entry.shape for name, entry in header.tensors.items() if name != COUNTS}


def _check_tensors(path: Path, shapes: Shapes | None) -> None:
    """Raise CheckpointError for a file with tensors that the model does not have, or too large."""
    if shapes is None:
        return
    entries = read_header(path).tensors
    if (own := sorted(map(_own, entries))) != sorted(shapes):
        other = sorted({*own} ^ {*shapes}) or ["one of them twice"]
        raise _damaged(path, f"other tensors than the model has: {excerpt(other[0])}")
    for name, entry in entries.items():
        shape = shapes[_own(name)]
        most = math.prod(shape) * _MOST_ITEM_BYTES + _SPARE_BYTES
        fits = entry.shape == shape if name == _own(name) else math.prod(entry.shape) <= most
        if not fits:
            raise _damaged(path, f"{excerpt(name)} of shape {list(entry.shape)} for a tensor of shape {list(shape)}")


def _own(name: str) -> str:
    """The name of the tensor that is stored under `name`."""
    return name.removeprefix(ROUNDED).removeprefix(_DIFFERENCE)


def _restored(name: str, stored: Tensor, base: Tensor | None, shapes: Shapes | None) -> Tensor:
    """The tensor stored under that name; ValueError, struct, zlib or LZMA errors if damaged."""
    if name.startswith(ROUNDED):
        shape = shapes[_own(name)] if shapes is not None else base.shape if base is not None else None
        if shape is None:
            raise ValueError("the checkpoint that says its shapes is missing")
        return unpacked(stored, shape, base)
    if name.startswith(_DIFFERENCE):
        if base is None:
            raise ValueError(f"no snapshot before it has {excerpt(_own(name))}")
        return _added(stored, base.contiguous())
    return stored


def _added(stored: Tensor, before: Tensor) -> Tensor:
    """The tensor of which `_packed` stored the difference from `before`."""
    import numpy as np
    import torch

    width, length, data = before.element_size(), before.numel(), stored.numpy().tobytes()
    planes = np.empty((width, length), dtype=np.uint8)
    begin = 0
    for plane in planes:
        size = int.from_bytes(data[begin : begin + 8], "little")
        part = data[begin + 8 : begin + 8 + size]
        begin += 8 + size
        raw = part if size == length else zlib.decompressobj().decompress(part, max(length, 1))
        plane[:] = np.frombuffer(raw, dtype=np.uint8)
    kind = getattr(torch, _AS_INTEGERS[width])
    difference = torch.from_numpy(np.ascontiguousarray(planes.T)).reshape(-1).view(kind)
    if width > 1:
        sign = -(difference & 1)
        most = torch.iinfo(kind).max
        difference = ((difference >> 1) & most) ^ sign
    return (before.reshape(-1).view(kind) + difference).view(before.dtype).reshape(before.shape)


def _damaged(path: Path, problem: str) -> CheckpointError:
    return CheckpointError(
        f"{path}: expected a snapshot of a run, found {problem}. Copy the run again, or train it again."
    )
