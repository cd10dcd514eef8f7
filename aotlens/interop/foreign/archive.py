"""Files of `torch.save`, and of `pickle.dump`: the values in them, with tensors made from their bytes.

Since PyTorch 1.6 such a file is a zip that compresses nothing: `data.pkl`, the program, and `data/0`, … the storages.
Before, it was programs one after another, and then each storage: its number of elements in 8 bytes, and those. Both are
read by the interpreter of `pickled.py`, mapped into memory and never unpacked, and a tensor is made only where it lies
within its storage.
"""

from __future__ import annotations

import io
import reprlib
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aotlens.interop.foreign.pickled import MAX_PROGRAM_BYTES, Readable, Refused, StandIn, StoredTensor, Unpickler

_OLD_MAGIC, _OLD_VERSION = 0x1950A86A20F9469CFC6C, 1001


class _Place(NamedTuple):
    """Where a storage lies in a file, in bytes."""

    start: int
    n_bytes: int


@dataclass(frozen=True)
class _Bytes:
    """The bytes of a file's storages."""

    place: Callable[[str], _Place]
    data: torch.UntypedStorage

    @classmethod
    def of(cls, path: Path, place: Callable[[str], _Place]) -> _Bytes:
        # Mapped, not read: memory is taken for what is kept only.
        data = torch.UntypedStorage.from_file(str(path), False, path.stat().st_size)
        assert isinstance(data, torch.UntypedStorage)
        return cls(place, data)

    def tensor(self, stored: StoredTensor) -> Tensor:
        """A view of the file. Raises `Refused` for a tensor that is larger than its storage, or reaches beyond it."""
        sizes, strides = _naturals(stored.size), _naturals(stored.stride)
        offset = _naturals((stored.offset,))[0]
        if len(sizes) != len(strides):
            raise Refused(f"it makes a tensor of {len(sizes)} sizes and {len(strides)} strides")
        numel, last = 1, offset
        for size, stride in zip(sizes, strides, strict=True):
            numel, last = numel * size, last + max(size - 1, 0) * stride
        if numel > stored.numel or (numel and last >= stored.numel):
            raise Refused(f"it makes a tensor {list(sizes)} of a storage of {stored.numel} numbers")
        start, length = self.place(stored.key)
        n_bytes = stored.numel * stored.dtype.itemsize
        if length != n_bytes:
            raise Refused(f"it says {n_bytes} bytes of a storage that has {length}")
        if start < 0 or start + n_bytes > self.data.nbytes():
            raise Refused("it has a storage that ends beyond the file")
        storage = self.data[start : start + n_bytes]
        with torch.no_grad():
            return torch.empty(0, dtype=stored.dtype).set_(storage, offset, sizes, strides)  # type: ignore[call-overload]


def _naturals(values: Any) -> tuple[int, ...]:
    if not isinstance(values, tuple) or any(type(value) is not int or value < 0 for value in values):
        raise Refused(f"it makes a tensor of sizes {reprlib.repr(values)}")
    return values


def read_pickled(path: Path) -> Any:
    """What `torch.save` wrote to `path`: plain values, tensors, and stand-ins for everything else.

    Raises `ValueError`, with the reason, for a file that is none of it or is damaged, whose program calls what it may
    not or never ends, or whose tensors do not lie within the file.
    """
    check_zip(path)
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                program, prefix = _program(archive)
                value = Unpickler(program).load()
                return _with_tensors(value, _Bytes.of(path, lambda key: _zipped(archive, f"{prefix}data/{key}", path)))
        with path.open("rb") as file:
            if file.read(4) == b"PK\x03\x04":
                raise ValueError("a zip that is not whole; fetch it again")
            file.seek(0)
            value, places = _read_old(file, path.stat().st_size)
        return _with_tensors(value, _Bytes.of(path, places.__getitem__))
    except Refused as reason:
        raise ValueError(
            f"{path}: this file is a pickled program, and {reason}, which reading weights does not need; nothing of it "
            "was run. If you trust it, load it where it comes from and save model.state_dict()."
        ) from None
    except Exception as error:  # a damaged pickle raises anything
        raise ValueError(f"{path}: damaged, or no file of torch.save: {type(error).__name__} {error}.") from error


def read_plain(path: Path) -> Any:
    """What `pickle.dump` wrote to `path`, as `read_pickled`. Raises `ValueError` as that."""
    try:
        with path.open("rb") as file:
            return Unpickler(_Bounded(file)).load()
    except Refused as reason:
        raise ValueError(f"{path}: this file is a pickled program, and {reason}; nothing of it was run.") from None
    except Exception as error:  # a damaged pickle raises anything
        raise ValueError(f"{path}: damaged, or no pickle: {type(error).__name__} {error}.") from error


def check_zip(path: Path) -> None:
    """Raise `ValueError` for a zip that unpacks to more than it holds: torch.save compresses nothing."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
        raise ValueError(f"{path}: a damaged zip ({error}). Fetch it again.") from error
    packed = [entry.filename for entry in entries if entry.compress_type != zipfile.ZIP_STORED]
    if packed or sum(entry.file_size for entry in entries) > path.stat().st_size:
        what = f"{packed[0]!r} is compressed" if packed else "its parts overlap"
        raise ValueError(
            f"{path}: expected what torch.save writes, which compresses nothing; here {what}, so that a small file "
            "could fill the memory. Nothing was read."
        )


def _program(archive: zipfile.ZipFile) -> tuple[Readable, str]:
    """The pickle in an archive, and the folder in which it lies."""
    names = [entry for entry in archive.infolist() if entry.filename.endswith("data.pkl")]
    if len(names) != 1 or names[0].filename.count("/") > 1:
        raise Refused(f"it holds {len(names)} programs named data.pkl, not one")
    prefix = names[0].filename.removesuffix("data.pkl")
    if f"{prefix}byteorder" in archive.namelist() and _read(archive, f"{prefix}byteorder", 16) != b"little":
        raise Refused("its numbers are stored with the largest byte first")
    return io.BytesIO(_read(archive, names[0].filename, MAX_PROGRAM_BYTES)), prefix


def _read(archive: zipfile.ZipFile, name: str, at_most: int) -> bytes:
    size = archive.getinfo(name).file_size
    if size > at_most:
        raise Refused(f"its {name.rsplit('/', 1)[-1]} has {size:,} bytes, more than {at_most:,}")
    return archive.read(name)


def _zipped(archive: zipfile.ZipFile, name: str, path: Path) -> _Place:
    """Where an entry's bytes begin: behind its header, its name and its padding."""
    entry = archive.getinfo(name)
    with path.open("rb") as file:
        file.seek(entry.header_offset + 26)
        n_name, n_padding = struct.unpack("<HH", file.read(4))
    return _Place(entry.header_offset + 30 + n_name + n_padding, entry.file_size)


class _Bounded:
    """The programs at the beginning of a file; reading more than a program may have is refused."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file, self._left = file, MAX_PROGRAM_BYTES

    def read(self, n: int, /) -> bytes:
        return self._spent(self._file.read(min(n, self._left + 1)))

    def readline(self) -> bytes:
        return self._spent(self._file.readline(self._left + 1))

    def _spent(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise Refused(f"it is longer than {MAX_PROGRAM_BYTES:,} bytes")
        return data


def _read_old(file: io.BufferedReader, size: int) -> tuple[Any, dict[str, _Place]]:
    """The value in a file of before PyTorch 1.6, and where its storages lie."""
    programs = _Bounded(file)
    if Unpickler(programs).load() != _OLD_MAGIC or Unpickler(programs).load() != _OLD_VERSION:
        raise ValueError("it is neither a zip nor what PyTorch wrote before 1.6")
    written_on = Unpickler(programs).load()
    if not isinstance(written_on, dict) or written_on.get("little_endian") is not True:
        raise Refused("its numbers are stored with the largest byte first")
    unpickler = Unpickler(programs)
    value, keys = unpickler.load(), Unpickler(programs).load()
    places: dict[str, _Place] = {}
    for key in keys:
        (numel,) = struct.unpack("<q", file.read(8))
        n_bytes = numel * unpickler.dtypes[key].itemsize
        if not 0 <= n_bytes <= size - file.tell():
            raise Refused(f"it says {n_bytes} bytes of a storage where {size - file.tell()} are left")
        places[key] = _Place(file.tell(), n_bytes)
        file.seek(n_bytes, io.SEEK_CUR)
    return value, places


def _with_tensors(root: Any, source: _Bytes) -> Any:
    """The value with tensors in place of their descriptions, in dictionaries, lists and states; each object once."""
    seen: set[int] = set()
    pending = [root]
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        places: Iterator[tuple[Any, Any, Any]] = iter(())
        if isinstance(value, dict):
            places = ((value, key, item) for key, item in list(value.items()))
        elif isinstance(value, list):
            places = ((value, i, item) for i, item in enumerate(value))
        elif isinstance(value, tuple):
            pending += value
        elif isinstance(value, StandIn):
            pending += [value.state, value.entries]
        for container, key, item in places:
            if isinstance(item, StoredTensor):
                container[key] = source.tensor(item)
            else:
                pending.append(item)
    return source.tensor(root) if isinstance(root, StoredTensor) else root
