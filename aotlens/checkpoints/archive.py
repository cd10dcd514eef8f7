"""Carrying a checkpoint elsewhere: export to one file (or a copy), import from it.

An archive holds the five files of a checkpoint in a folder of its name. Import reads those five names and
nothing else, writes them itself, loads what it wrote, and only then gives it its name, so neither a hostile
nor a damaged archive leaves anything behind.

A few kilobytes can hold gigabytes, a listing a million names, an xz stream a dictionary of 4 GB. Every byte that comes
out is counted, and so is every entry: an archive may unpack to `MOST_TIMES` its own size (weights hardly shrink) and
`MOST_SPARE_BYTES` more; it is read from front to back, once for the names and once for the files.
"""

from __future__ import annotations

import lzma
import os
import shutil
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from aotlens.checkpoints.header import opened
from aotlens.checkpoints.info import CheckpointInfo, read_info
from aotlens.checkpoints.layout import (
    ARCHIVES,
    CONFIG,
    FILES,
    CheckpointError,
    is_checkpoint,
    is_taken,
    locate,
    place,
    replacing,
)
from aotlens.checkpoints.reading import load_folder, verify
from aotlens.checkpoints.snapshots import split_step
from aotlens.checkpoints.writing import save_checkpoint
from aotlens.files import force_to_disk, replacing_file
from aotlens.untrusted import MAX_READ, MOST_BYTES, ShortReads, excerpt, open_regular, without_control


def export_checkpoint(folder: str | Path, destination: str | Path) -> Path:
    """Write the checkpoint in `folder` to a .tar, .tar.gz, .tgz, .tar.xz or .zip, or else to a new folder.

    NAME@STEP, a run's snapshot, becomes a checkpoint NAME-STEP of its own.

    Raises CheckpointError if it is damaged or if `destination` exists; nothing is overwritten.
    """
    folder, destination = Path(folder), Path(destination).expanduser()
    checkpoint, step = split_step(folder)
    if step is not None:
        with tempfile.TemporaryDirectory() as parent:
            model = load_folder(folder, "cpu")
            whole = Path(parent) / f"{checkpoint.name}-{step}"
            save_checkpoint(whole, model, model.card)
            return export_checkpoint(whole, destination)
    problems = verify(folder)
    if problems:
        raise CheckpointError(f"only whole checkpoints are exported: {' '.join(problems)}")
    if is_taken(destination):
        raise CheckpointError(f"{destination}: exists already. Choose another name, or remove it first.")
    name = read_info(folder).name
    try:
        if not str(destination).endswith(ARCHIVES):
            with replacing(destination) as incoming:
                for file, stream in _of_folder(folder):
                    _write_stream(stream, incoming / file)
            return destination
        with replacing_file(destination) as unfinished:
            if destination.suffix == ".zip":
                _write_zip(unfinished, name, folder)
            else:
                mode = {".gz": "w:gz", ".tgz": "w:gz", ".xz": "w:xz"}.get(destination.suffix, "w")
                _write_tar(unfinished, mode, name, folder)
    except OSError as error:
        raise CheckpointError(
            f"{destination}: could not be written: {error.strerror or error}. Free some space, or choose another place."
        ) from error
    return destination


def import_checkpoint(source: str | Path, *, name: str | None = None, into: str | Path | None = None) -> CheckpointInfo:
    """Bring the checkpoint in archive or folder `source` to ``into/name`` (the home folder, its own name).

    Returns what was imported. Raises CheckpointError for a damaged or unsafe archive, a checkpoint that
    doesn't load, and a name that is taken; then nothing is left behind.
    """
    source = Path(source).expanduser()
    try:
        members = _members(source)
        target = place(members.name if name is None else name, into)
        if is_taken(target):
            raise CheckpointError(f"{target}: exists already. Give another name, or remove it first.")
        with replacing(target) as incoming:
            members.write_to(incoming)
            if problems := verify(incoming):
                raise CheckpointError(f"{source}: holds no checkpoint that loads: {' '.join(problems)}")
    except OSError as error:
        raise CheckpointError(f"{source}: can't be read: {error.strerror or error}.") from error
    return read_info(target)


@dataclass(frozen=True, kw_only=True)
class _Members:
    """The files of one checkpoint somewhere: their sizes, and their bytes one after the other."""

    source: Path
    name: str
    sizes: dict[str, int]
    streams: Callable[[], Iterator[tuple[str, Any]]]

    def write_to(self, folder: Path) -> None:
        total, free = sum(self.sizes.values()), shutil.disk_usage(folder).free
        if total > free:
            raise CheckpointError(
                f"{self.source}: expected at most the {free / 1e6:.0f} MB that are free, found "
                f"{total / 1e6:.0f} MB. Free some space."
            )
        for file, size in self.sizes.items():
            if size > MOST_BYTES.get(file, size):
                raise CheckpointError(f"{self.source}: expected a small {file}, found {size / 1e6:.0f} MB.")
        for file, stream in self.streams():
            try:
                _write_stream(stream, folder / file)
            except DAMAGED as error:
                raise CheckpointError(f"{self.source}: {file} can't be unpacked: {error}. Fetch it again.") from error


def _members(source: Path) -> _Members:
    if source.is_dir():
        if not is_checkpoint(source):
            raise CheckpointError(f"{source}: expected a checkpoint's folder, found no {CONFIG} in it.")
        sizes = {}
        for part in _parts(source):
            with opened(part, source) as (_, sizes[part.name]):
                continue
        name = source.resolve().name
        return _Members(source=source, name=name, sizes=sizes, streams=lambda: _of_folder(source))
    if not os.path.lexists(source):
        raise CheckpointError(f"{source}: expected an archive or a checkpoint's folder, found nothing there.")
    sizes_by_path: dict[PurePosixPath, int] = {}
    for entry in entries(source):
        path = PurePosixPath(entry.path)
        if path.is_absolute() or ".." in path.parts or "\\" in entry.path or entry.kind == "other":
            raise CheckpointError(
                f"{source}: expected plain files inside the archive, found {excerpt(entry.path)}, a link, a device or "
                "a path that leads out of it. Don't trust it; nothing was written."
            )
        if entry.kind == "folder" or path.name not in FILES:
            continue
        if path in sizes_by_path:
            raise CheckpointError(f"{source}: expected each file once, found {excerpt(entry.path)} twice.")
        sizes_by_path[path] = entry.size
    homes = [path.parent for path in sizes_by_path if path.name == CONFIG]
    if len(homes) != 1:
        raise CheckpointError(
            f"{source}: expected one checkpoint, found {len(homes)} {CONFIG} in it. Export each to a file of its own."
        )
    return _Members(
        source=source,
        name=homes[0].name or source.name.split(".")[0],
        sizes={path.name: size for path, size in sizes_by_path.items() if path.parent == homes[0]},
        streams=lambda: _of_archive(source, homes[0]),
    )


def _of_folder(folder: Path) -> Iterator[tuple[str, Any]]:
    for part in _parts(folder):
        with opened(part, folder) as (file, _):
            yield part.name, file


def _of_archive(source: Path, home: PurePosixPath) -> Iterator[tuple[str, Any]]:
    for entry in entries(source):
        path = PurePosixPath(entry.path)
        if entry.stream is not None and path.parent == home and path.name in FILES:
            yield path.name, entry.stream


def _parts(folder: Path) -> list[Path]:
    return [part for part in (locate(folder, file) for file in FILES) if part.is_file()]


def _write_stream(stream: Any, path: Path) -> None:
    with open(path, "wb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)
    force_to_disk(path)


def _write_tar(path: Path, mode: str, name: str, folder: Path) -> None:
    """Leave out owner, times and modes: the same checkpoint gives the same bytes (but for a gzip time)."""
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for part in _parts(folder):
            member = tarfile.TarInfo(f"{name}/{part.name}")
            member.size, member.mode = part.stat().st_size, 0o644
            with open(part, "rb") as stream:
                archive.addfile(member, stream)


def _write_zip(path: Path, name: str, folder: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in _parts(folder):
            archive.write(part, f"{name}/{part.name}")


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
                raise ValueError(f"{excerpt(item.filename)} is packed in an unusual way")
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
