"""What a safetensors file contains, read from its header alone.

The header is 8 bytes (its length, little-endian) and JSON: ``{name: {dtype, shape, data_offsets}}``. Reading
it here costs neither torch nor the weights, so a listing can tell a truncated file, and `load` can compare
names and shapes with the model before it reads a single weight.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotlens.checkpoints.errors import CheckpointError

#: Bytes per element, of the dtypes that a checkpoint may hold.
_ITEM_BYTES = {"F32": 4, "BF16": 2, "F16": 2, "F64": 8, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1}

#: safetensors itself refuses longer ones.
_MAX_HEADER_BYTES = 100_000_000


@dataclass(frozen=True, kw_only=True)
class TensorEntry:
    """One tensor of a file."""

    dtype: str
    """As safetensors names it: F32, BF16, I64, ..."""
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Header:
    """The tensors of a file by name, and its free-form metadata."""

    tensors: dict[str, TensorEntry]
    metadata: dict[str, str]


def read_header(path: Path) -> Header:
    """The header of a safetensors file, checked against the size of the file. Raises CheckpointError."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _MAX_HEADER_BYTES):
                raise _damaged(path, f"a header of {length} bytes in a file of {size}")
            entries = json.loads(file.read(length))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: expected the weights, found no such file. {_REMEDY}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: the weights can't be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise _damaged(path, "a header that isn't JSON") from error
    if not isinstance(entries, dict):
        raise _damaged(path, "a header that isn't a JSON object")
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _damaged(path, "metadata that isn't text by name")
    tensors, end = {}, 0
    for name, entry in entries.items():
        tensors[name], last = _entry(path, name, entry)
        end = max(end, last)
    if 8 + length + end != size:
        raise _damaged(path, f"{size} bytes where its header promises {8 + length + end}: truncated or extended")
    return Header(tensors=tensors, metadata=metadata)


def _entry(path: Path, name: str, entry: Any) -> tuple[TensorEntry, int]:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]}:
            if dtype not in _ITEM_BYTES:
                raise CheckpointError(
                    f"{path}: tensor {name!r}: expected one of the dtypes {', '.join(_ITEM_BYTES)}, found {dtype!r}."
                )
            if not all(type(length) is int and length >= 0 for length in shape):
                raise _damaged(path, f"tensor {name!r} with the shape {shape}")
            if start < 0 or end - start != math.prod(shape) * _ITEM_BYTES[dtype]:
                raise _damaged(path, f"tensor {name!r} of shape {shape}, {dtype}, in {end - start} bytes")
            return TensorEntry(dtype=dtype, shape=tuple(shape)), end
    raise _damaged(path, f"tensor {name!r} without dtype, shape and offsets")


_REMEDY = "Copy the checkpoint again from where it came from, or train it again."


def _damaged(path: Path, found: str) -> CheckpointError:
    return CheckpointError(f"{path}: expected a whole safetensors file, found {found}. {_REMEDY}")
