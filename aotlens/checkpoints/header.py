"""The contents of a safetensors file, read from its header alone; and opening a checkpoint's files: regular ones only,
each within its limit, and every failure a CheckpointError.

The header is 8 bytes (its length, little-endian) and JSON: ``{name: {dtype, shape, data_offsets}}``. Reading
it here costs neither torch nor the weights, so a listing can tell a truncated file, and `load` can compare
names and shapes with the model before it reads a single weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from aotlens.checkpoints.layout import CheckpointError, locate
from aotlens.untrusted import MOST_BYTES, check_name, check_plain, excerpt, open_regular, read_regular, strict_json

#: Bytes per element, of the dtypes that a checkpoint may hold.
_ITEM_BYTES = {"F32": 4, "BF16": 2, "F16": 2, "F64": 8, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1}

_MOST_DIMENSIONS = 8


@dataclass(frozen=True, kw_only=True)
class TensorEntry:
    """One tensor of a file."""

    dtype: str
    """The data type as safetensors names it: F32, BF16, I64, ..."""
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Header:
    """The tensors of a file by name, and its free-form metadata."""

    tensors: dict[str, TensorEntry]
    metadata: dict[str, str]


def read_header(path: Path, folder: Path | None = None) -> Header:
    """Return the header of a safetensors file, checked against the size of the file. Raises CheckpointError.

    `folder` is the checkpoint's, which a link may not leave; the file's own if None.
    """
    with opened(path, path.parent if folder is None else folder) as (file, size):
        return parse_header(path, file, size)[0]


def parse_header(path: Path, file: BinaryIO, size: int) -> tuple[Header, bytes]:
    """Return the header of an open file of `size` bytes, and the bytes read so far; what follows are the weights."""
    beginning = file.read(8)
    length = int.from_bytes(beginning, "little")
    if size < 8 or length > size - 8:
        raise _damaged(path, f"a header of {length} bytes in a file of {size}")
    if length > (most := MOST_BYTES["the header of weights"]):
        raise _damaged(path, f"a header of {length / 1e6:.1f} MB, more than {most / 1e6:g}")
    text = file.read(length)
    try:
        entries = strict_json(text)
    except ValueError as error:
        raise _damaged(path, f"a header that isn't JSON ({error})") from error
    if not isinstance(entries, dict):
        raise _damaged(path, "a header that isn't a JSON object")
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _damaged(path, "metadata that isn't text by name")
    tensors, places = {}, []
    for name, entry in entries.items():
        tensors[name], place = _entry(path, name, entry)
        places.append(place)
    end = 0
    for start, last in sorted(places):
        if start != end:
            raise _damaged(path, f"tensors that overlap or leave a gap at byte {min(start, end)}")
        end = last
    if 8 + length + end != size:
        raise _damaged(path, f"{size} bytes where its header promises {8 + length + end}: truncated or extended")
    return Header(tensors=tensors, metadata=metadata), beginning + text


def _entry(path: Path, name: str, entry: Any) -> tuple[TensorEntry, tuple[int, int]]:
    """The tensor, and where its bytes begin and end."""
    try:
        check_name(name, "tensor")
        check_plain(entry, f"tensor {name!r}")
    except ValueError as error:
        raise _damaged(path, str(error).rstrip(".")) from error
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]}:
            if dtype not in _ITEM_BYTES:
                raise CheckpointError(
                    f"{path}: tensor {name!r}: expected one of the dtypes {', '.join(_ITEM_BYTES)}, found "
                    f"{excerpt(dtype)}."
                )
            if len(shape) > _MOST_DIMENSIONS or not all(type(length) is int and length >= 0 for length in shape):
                raise _damaged(path, f"tensor {name!r} with the shape {excerpt(shape)}")
            if start < 0 or end - start != math.prod(shape) * _ITEM_BYTES[dtype]:
                raise _damaged(path, f"tensor {name!r} of shape {shape}, {dtype}, in {end - start} bytes")
            return TensorEntry(dtype=dtype, shape=tuple(shape)), (start, end)
    raise _damaged(path, f"tensor {name!r} without dtype, shape and offsets")


_REMEDY = "Copy the checkpoint again from where it came from, or train it again."


def _damaged(path: Path, problem: str) -> CheckpointError:
    return CheckpointError(f"{path}: expected a whole safetensors file, found {problem}. {_REMEDY}")


@contextmanager
def opened(path: Path, folder: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open the regular file at `path` of a checkpoint's `folder`, and yield it with its size. Raises
    CheckpointError."""
    with _refusals(path), open_regular(path, inside=folder) as (file, size):
        yield file, size


def read_part(folder: Path, name: str) -> bytes:
    """Return the bytes of the file `name` of the checkpoint in `folder`. Raises CheckpointError."""
    path = locate(folder, name)
    with _refusals(path):
        return read_regular(path, inside=folder)


def read_text(folder: Path, name: str) -> str:
    """Return the text, UTF-8, of the file `name` of the checkpoint in `folder`."""
    try:
        return read_part(folder, name).decode("utf-8")
    except UnicodeDecodeError as error:
        byte = f"{error.object[error.start]:#04x} at byte {error.start}"
        raise CheckpointError(f"{locate(folder, name)}: expected UTF-8 text, found {byte}.") from None


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    try:
        yield
    except CheckpointError:
        raise
    except FileNotFoundError:
        raise CheckpointError(
            f"{path}: expected a checkpoint's {path.name}, found no such file. Copy the checkpoint again from where it "
            "came from."
        ) from None
    except OSError as error:
        raise CheckpointError(f"{path}: can't be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise CheckpointError(str(error)) from error
