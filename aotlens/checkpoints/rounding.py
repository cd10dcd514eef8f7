"""Snapshots in a tenth of the room: weights rounded to multiples of a step, and stored as whole numbers of steps.

The step of a tensor is √12 · `error` times the root mean square of its weights, so that rounding moves them by `error`
of that. What is rounded is the difference from the *rounded* snapshot before, so that errors do not add up: every
weight of every snapshot lies within half a step of what it was. Most of those numbers are 0, and LZMA stores them in
about a bit. What is restored has a hash of its own, as other snapshots have.
"""

from __future__ import annotations

import lzma
import math
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

#: The prefix of the names of tensors that are stored as numbers of steps.
ROUNDED = "steps from "
#: Tensors of fewer weights, such as biases, are stored as they are.
_FEWEST = 4096
#: Bytes of what unpacking the numbers of a tensor takes beside them; those of `_packed` take 9 MB.
_MOST_XZ_BYTES = 2**25
_LEVELS = {1: "int8", 2: "int16", 4: "int32"}
_HEADER = struct.Struct("<fBB")  # step, bytes of a level, dimensions


def rounded(
    tensors: Mapping[str, Tensor], base: Mapping[str, Tensor], errors: Mapping[str, float]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the stored form of tensors, each rounded by its error, by the names of `ROUNDED` and their own; and the
    tensors restored from it."""
    stored: dict[str, Tensor] = {}
    restored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        before = base.get(name)
        packed = _packed(tensor, before, errors[name])
        if packed is None:
            stored[name] = restored[name] = tensor
        else:
            stored[f"{ROUNDED}{name}"] = packed
            restored[name] = unpacked(packed, tensor.shape, before)
    return stored, restored


def _packed(tensor: Tensor, base: Tensor | None, error: float) -> Tensor | None:
    """A tensor's difference from `base` in steps, as bytes; None if small, not float32, or not finite."""
    import numpy as np
    import torch

    if tensor.dtype != torch.float32 or tensor.numel() < _FEWEST:
        return None
    weights = tensor.numpy()
    step = np.float32(math.sqrt(12) * error * math.sqrt(float(np.square(weights, dtype=np.float64).mean())))
    if not 0 < step < np.inf:
        return None
    difference = weights if base is None else weights - base.numpy()
    levels = np.rint(difference / step)
    width = next((n_bytes for n_bytes in _LEVELS if np.abs(levels).max() <= np.iinfo(_LEVELS[n_bytes]).max), None)
    if width is None:
        return None
    whole = levels.astype(_LEVELS[width])
    planes = whole.reshape(-1).view(np.uint8).reshape(-1, width).T.tobytes()
    header = _HEADER.pack(step, width, whole.ndim) + struct.pack(f"<{whole.ndim}Q", *whole.shape)
    return torch.frombuffer(bytearray(header + lzma.compress(planes, preset=6)), dtype=torch.uint8)


def unpacked(packed: Tensor, expected: Sequence[int], base: Tensor | None) -> Tensor:
    """Return the float32 tensor of the `expected` shape of which `rounded` stored this. Raises ValueError, struct.error
    or lzma.LZMAError for another shape, before anything is unpacked, and for what is none."""
    import numpy as np
    import torch

    data = packed.numpy().tobytes()
    step, width, n_dimensions = _HEADER.unpack_from(data)
    shape = struct.unpack_from(f"<{n_dimensions}Q", data, _HEADER.size)
    if width not in _LEVELS or not math.isfinite(step) or shape != tuple(expected):
        raise ValueError(f"numbers of {width} bytes of shape {list(shape)}, not {list(expected)}")
    length = math.prod(shape)
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_XZ_BYTES)
    raw = unpacker.decompress(data[_HEADER.size + 8 * n_dimensions :], length * width)
    if len(raw) != length * width:
        raise ValueError(f"{len(raw):,} bytes of {length * width:,}")
    planes = np.frombuffer(raw, dtype=np.uint8).reshape(width, length)
    levels = np.ascontiguousarray(planes.T).reshape(-1).view(_LEVELS[width]).reshape(shape)
    # Two operations, each rounded as IEEE 754 says, so that every machine restores the same bits.
    weights = levels.astype(np.float32) * np.float32(step)
    return torch.from_numpy(weights if base is None else base.numpy() + weights)
