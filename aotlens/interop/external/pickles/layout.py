"""The places of the program and of the storages of tensors in a file.

Since PyTorch 1.6 a file of torch.save is a zip that compresses nothing: `data.pkl`, the program, and `data/0`, … the
storages. Before, it was programs one after another, and then each storage: its number of elements in 8 bytes, and
those. A file of pickle.dump is a program, in which a storage is bytes: those of such an old file.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

from .interpreter import DTYPES, MAX_PROGRAM_BYTES, Builder, Readable, Refused, StandIn, Unpickler

_OLD_MAGIC, _OLD_VERSION = 0x1950A86A20F9469CFC6C, 1001


class Place(NamedTuple):
    """The place of a storage in a file, in bytes."""

    start: int
    n_bytes: int


Places = Callable[[str], Place]


class Unfit(ValueError):
    """The file is of another form; the message says which."""


def read_saved(file: BinaryIO) -> tuple[Any, Places]:
    """Return the value in a file of torch.save or pickle.dump, its tensors as descriptions, and the place of a storage
    by its key.

    Raises `Refused` for a program that does what reading weights does not need, `Unfit`, and, for a damaged file,
    anything.
    """
    check_zip(file)
    if zipfile.is_zipfile(file):
        archive = zipfile.ZipFile(file)
        program, prefix = _program(archive)
        return Unpickler(program).load(), lambda key: _zipped(archive, f"{prefix}data/{key}", file)
    file.seek(0)
    if file.read(4) == b"PK\x03\x04":
        raise ValueError("a zip that is not whole; fetch it again")
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    dumped = _Dumped(file)
    if isinstance(value := dumped.load(), dict | StandIn):
        return value, dumped.places.__getitem__
    file.seek(0)
    value, places = _read_old(file, size)
    return value, places.__getitem__


class _Dumped(Unpickler):
    """Runs the program of pickle.dump, and finds where the numbers of its storages lie in the file."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(_Bounded(file))
        self._source = file
        self._whole = file.read(MAX_PROGRAM_BYTES)
        self.places: dict[str, Place] = {}
        file.seek(0)

    def find_class(self, module: str, name: str) -> Any:
        is_storage = (module, name) == ("torch.storage", "_load_from_bytes")
        return Builder(self._storage) if is_storage else super().find_class(module, name)

    def _storage(self, stored: Any) -> Any:
        start = self._whole.rfind(stored, 0, self._source.tell()) if isinstance(stored, bytes) else -1
        if start < 0:
            raise Refused("it holds a storage in a protocol before 3, or in no bytes")
        (kind, key, numel), places = _read_old(io.BytesIO(stored), len(stored))
        ours = str(len(self.places))
        self.places[ours] = Place(start + places[key].start, places[key].n_bytes)
        return kind, ours, numel


def read_plain(file: BinaryIO) -> Any:
    """Return the value in a file of pickle.dump, as `read_saved`."""
    return Unpickler(_Bounded(file)).load()


def check_zip(file: Any) -> None:
    """Raise `Unfit` for a zip, as an open file that can be sought, that unpacks to more than it holds: torch.save
    compresses nothing."""
    try:
        if not zipfile.is_zipfile(file):
            return
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
    except Exception as error:  # a damaged zip raises anything
        raise Unfit(f"a damaged zip ({error}). Fetch it again.") from error
    packed = [entry.filename for entry in entries if entry.compress_type != zipfile.ZIP_STORED]
    if packed or sum(entry.file_size for entry in entries) > file.seek(0, os.SEEK_END):
        what = f"{packed[0][:200]!r} is compressed" if packed else "its parts overlap"
        raise Unfit(
            f"expected what torch.save writes, which compresses nothing; here {what}, so that a small file could fill "
            "the memory. Nothing was read."
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


def _zipped(archive: zipfile.ZipFile, name: str, file: BinaryIO) -> Place:
    """Find the place of an entry's bytes: behind its header, its name and its padding."""
    entry = archive.getinfo(name)
    file.seek(entry.header_offset + 26)
    n_name, n_padding = struct.unpack("<HH", file.read(4))
    return Place(entry.header_offset + 30 + n_name + n_padding, entry.file_size)


class _Bounded:
    """The programs at the beginning of a file; reading more than a program may have is refused."""

    def __init__(self, file: BinaryIO) -> None:
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


def _read_old(file: BinaryIO, size: int) -> tuple[Any, dict[str, Place]]:
    """The value in a file of before PyTorch 1.6, and where its storages lie."""
    programs = _Bounded(file)
    if Unpickler(programs).load() != _OLD_MAGIC or Unpickler(programs).load() != _OLD_VERSION:
        raise ValueError("it is neither a zip nor what PyTorch wrote before 1.6")
    written_on = Unpickler(programs).load()
    if not isinstance(written_on, dict) or written_on.get("little_endian") is not True:
        raise Refused("its numbers are stored with the largest byte first")
    unpickler = Unpickler(programs)
    value, keys = unpickler.load(), Unpickler(programs).load()
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise Refused("it names its storages by what are no names")
    places: dict[str, Place] = {}
    for key in keys:
        (numel,) = struct.unpack("<q", file.read(8))
        n_bytes = numel * DTYPES[unpickler.kinds[key]][1]
        if not 0 <= n_bytes <= size - file.tell():
            raise Refused(f"it says {n_bytes} bytes of a storage where {size - file.tell()} are left")
        places[key] = Place(file.tell(), n_bytes)
        file.seek(n_bytes, io.SEEK_CUR)
    return value, places
