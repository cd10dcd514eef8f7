"""Reading archives that may be hostile: every byte that comes out is counted, and so is every entry.

A few kilobytes can hold gigabytes, a listing a million names, an xz stream a dictionary of 4 GB. An archive may unpack
to `MOST_TIMES` its own size (weights hardly shrink) and `MOST_SPARE_BYTES` more; it is read from front to back, once
for the names and once for the files.
"""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from aotlens.checkpoints.errors import CheckpointError
from aotlens.checkpoints.layout import ARCHIVES
from aotlens.untrusted import MAX_READ, ShortReads, open_regular, shown, without_control

#: An archive may unpack to this many times its size, and so many bytes more.
MOST_TIMES = 20
MOST_SPARE_BYTES = 64_000_000

#: The most entries of an archive; a checkpoint has five.
MOST_ENTRIES = 1_000

#: The largest dictionary, in bytes, that an xz stream may ask for; `xz -9` takes 65 MB.
_MOST_XZ_BYTES = 128_000_000

#: The exceptions that the readers of archives raise for damaged ones.
DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    ValueError,
    RuntimeError,
    NotImplementedError,
    OverflowError,
)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of an archive; `stream` is its bytes until the next entry is asked for, None for what is no file."""

    path: str
    size: int
    kind: str
    """file, folder or other: a link, a device, a pipe."""
    stream: Any


def entries(source: Path) -> Iterator[Entry]:
    """Yield everything in the archive `source`, in its order. Raises CheckpointError for a damaged or oversized one."""
    try:
        with open_regular(source) as (file, size):
            most = MOST_TIMES * size + MOST_SPARE_BYTES
            total = 0
            read = _of_zip if file.read(4) in (b"PK\x03\x04", b"PK\x05\x06") else _of_tar
            file.seek(0)
            for number, entry in enumerate(read(file, most)):
                total += entry.size
                if number >= MOST_ENTRIES:
                    raise ValueError(f"expected at most {MOST_ENTRIES:,} entries, found more")
                if entry.size < 0 or total > most:
                    raise _too_large(most)
                yield entry
    except CheckpointError:
        raise
    except (*DAMAGED, MemoryError) as error:
        raise CheckpointError(
            f"{source}: expected an archive ({', '.join(ARCHIVES)}), whole and no larger than its files, found: "
            f"{without_control(str(error))[:300].rstrip('.')}. Fetch it again."
        ) from error


def _of_zip(file: BinaryIO, most: int) -> Iterator[Entry]:
    counted = _Counted(file, most)
    with zipfile.ZipFile(counted) as archive:  # type: ignore[arg-type]
        for item in archive.infolist():
            mode = item.external_attr >> 16
            linked = mode & 0o170000 not in (0, 0o100000, 0o040000)
            kind = "other" if linked else "folder" if item.is_dir() else "file"
            if kind != "file":
                yield Entry(path=item.filename, size=item.file_size, kind=kind, stream=None)
                continue
            if item.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise ValueError(f"{shown(item.filename)} is packed in an unusual way")
            with archive.open(item) as stream:
                yield Entry(path=item.filename, size=item.file_size, kind=kind, stream=stream)


def _of_tar(file: BinaryIO, most: int) -> Iterator[Entry]:
    with tarfile.open(fileobj=_unpacked(file, most), mode="r|") as archive:  # type: ignore[call-overload]
        for member in archive:
            kind = "file" if member.isreg() else "folder" if member.isdir() else "other"
            stream = archive.extractfile(member) if kind == "file" else None
            yield Entry(path=member.name, size=member.size, kind=kind, stream=stream)


def _unpacked(file: BinaryIO, most: int) -> Any:
    beginning = file.read(6)
    file.seek(0)
    if beginning[:2] == b"\x1f\x8b":
        return _Stream(file, most, _Gzip())
    if beginning == b"\xfd7zXZ\x00":
        return _Stream(file, most, lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_XZ_BYTES))
    return _Counted(file, most)


class _Counted(ShortReads):
    """A file of which at most `most` bytes are read, few at once."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        super().__init__(file)
        self._most, self._left = most, most

    def read(self, size: int = -1) -> bytes:
        data = super().read(size)
        self._left -= len(data)
        if self._left < 0:
            raise _too_large(self._most)
        return data


class _Gzip:
    """zlib with the interface of an LZMADecompressor, for one gzip member."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail and not self.eof

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


class _Stream:
    """The unpacked contents of a packed file, from front to back; at most `most` bytes of it."""

    def __init__(self, file: BinaryIO, most: int, unpacker: Any) -> None:
        self._file, self._most, self._left, self._unpacker = file, most, most, unpacker

    def read(self, size: int) -> bytes:
        if size < 0 or size > MAX_READ:
            raise ValueError(f"expected names and lists of names that are short, found {size:,} bytes")
        parts, missing = [], size
        while missing and not self._unpacker.eof:
            data = self._file.read(1 << 16) if self._unpacker.needs_input else b""
            part = self._unpacker.decompress(data, missing)
            if not (data or part):
                raise EOFError("the file ends before its contents do")
            parts.append(part)
            missing -= len(part)
        self._left -= size - missing
        if self._left < 0:
            raise _too_large(self._most)
        return b"".join(parts)

    def close(self) -> None:
        """The file is closed by who opened it."""


def _too_large(most: int) -> ValueError:
    return ValueError(f"more than the {most / 1e6:,.0f} MB that weights of this archive's size unpack to")
