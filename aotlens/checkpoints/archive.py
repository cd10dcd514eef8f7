"""Carrying a checkpoint elsewhere: export to one file (or a copy), import from it.

An archive holds the five files of a checkpoint in a folder of its name. Import reads those five names and
nothing else, writes them itself, loads what it wrote, and only then gives it its name, so neither a hostile
nor a damaged archive leaves anything behind.
"""

from __future__ import annotations

import lzma
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from aotlens.checkpoints.errors import CheckpointError
from aotlens.checkpoints.info import CheckpointInfo, read_info
from aotlens.checkpoints.layout import ARCHIVES, CONFIG, FILES, WEIGHTS, is_checkpoint, locate, place, replacing
from aotlens.checkpoints.reading import verify
from aotlens.files import force_to_disk, replacing_file

#: Opens one file of a checkpoint, wherever it is; its bytes can be read from what this returns.
Open = Callable[[], Any]

#: Everything but the weights is read into memory whole.
_MAX_TEXT_BYTES = 256_000_000

#: What the readers of archives raise for damaged ones.
_DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    ValueError,
    RuntimeError,
    NotImplementedError,
)


def export_checkpoint(folder: str | Path, destination: str | Path) -> Path:
    """Writes the checkpoint in `folder` to a .tar, .tar.gz, .tgz, .tar.xz or .zip, or else to a new folder.

    Raises CheckpointError if it is damaged or if `destination` exists; nothing is overwritten.
    """
    folder, destination = Path(folder), Path(destination).expanduser()
    problems = verify(folder)
    if problems:
        raise CheckpointError(f"only whole checkpoints are exported: {' '.join(problems)}")
    if destination.exists():
        raise CheckpointError(f"{destination}: exists already. Choose another name, or remove it first.")
    name = read_info(folder).name
    try:
        if not str(destination).endswith(ARCHIVES):
            with replacing(destination) as incoming:
                for part in _parts(folder):
                    _copy(part, incoming / part.name)
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
    """Brings the checkpoint in archive or folder `source` to ``into/name`` (the home folder, its own name).

    Returns what was imported. Raises CheckpointError for a damaged or unsafe archive, a checkpoint that
    doesn't load, and a name that is taken; then nothing is left behind.
    """
    source = Path(source).expanduser()
    try:
        with _opened(source) as members:
            target = place(members.name if name is None else name, into)
            if target.exists():
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
    """The files of one checkpoint somewhere, each with its size and a way to open it."""

    source: Path
    name: str
    sizes: dict[str, int]
    open: dict[str, Open]

    def write_to(self, folder: Path) -> None:
        total, free = sum(self.sizes.values()), shutil.disk_usage(folder).free
        if total > free:
            raise CheckpointError(
                f"{self.source}: expected at most the {free / 1e6:.0f} MB that are free, found "
                f"{total / 1e6:.0f} MB. Free some space."
            )
        for file, size in self.sizes.items():
            if file != WEIGHTS and size > _MAX_TEXT_BYTES:
                raise CheckpointError(f"{self.source}: expected a small {file}, found {size / 1e6:.0f} MB.")
            try:
                with self.open[file]() as stream:
                    _write_stream(stream, folder / file)
            except _DAMAGED as error:
                raise CheckpointError(f"{self.source}: {file} can't be unpacked: {error}. Fetch it again.") from error


@contextmanager
def _opened(source: Path) -> Iterator[_Members]:
    if source.is_dir():
        if not is_checkpoint(source):
            raise CheckpointError(f"{source}: expected a checkpoint's folder, found no {CONFIG} in it.")
        parts = {part.name: part for part in _parts(source)}
        sizes = {file: part.stat().st_size for file, part in parts.items()}
        yield _Members(
            source=source,
            name=source.resolve().name,
            sizes=sizes,
            open={file: partial(_read, part) for file, part in parts.items()},
        )
        return
    if not source.is_file():
        raise CheckpointError(f"{source}: expected an archive or a checkpoint's folder, found nothing there.")
    with _open_archive(source) as archive:
        yield _members(source, archive)


def _open_archive(source: Path) -> tarfile.TarFile | zipfile.ZipFile:
    try:
        if zipfile.is_zipfile(source):
            return zipfile.ZipFile(source)
        return tarfile.open(source)
    except (*_DAMAGED, OSError) as error:
        raise CheckpointError(
            f"{source}: expected an archive ({', '.join(ARCHIVES)}), found: {error}. Fetch it again."
        ) from error


def _members(source: Path, archive: tarfile.TarFile | zipfile.ZipFile) -> _Members:
    entries: dict[PurePosixPath, tuple[Open, int]] = {}
    for text, size, opener, kind in _entries(source, archive):
        path = PurePosixPath(text)
        if path.is_absolute() or ".." in path.parts or "\\" in text or kind == "other":
            raise CheckpointError(
                f"{source}: expected plain files inside the archive, found {text!r}, a link, a device or a "
                "path that leads out of it. Don't trust it; nothing was written."
            )
        if kind == "folder" or path.name not in FILES:
            continue
        if path in entries:
            raise CheckpointError(f"{source}: expected each file once, found {text!r} twice.")
        entries[path] = (opener, size)
    homes = [path.parent for path in entries if path.name == CONFIG]
    if len(homes) != 1:
        raise CheckpointError(
            f"{source}: expected one checkpoint, found {len(homes)} {CONFIG} in it. Export each to a file of its own."
        )
    own = {path.name: found for path, found in entries.items() if path.parent == homes[0]}
    return _Members(
        source=source,
        name=homes[0].name or source.name.split(".")[0],
        sizes={file: size for file, (_, size) in own.items()},
        open={file: opener for file, (opener, _) in own.items()},
    )


def _entries(source: Path, archive: tarfile.TarFile | zipfile.ZipFile) -> Iterator[tuple[str, int, Open, str]]:
    """(path, bytes, how to open it, "file" | "folder" | "other") of everything in the archive."""
    try:
        if isinstance(archive, zipfile.ZipFile):
            for item in archive.infolist():
                mode = item.external_attr >> 16
                linked = mode & 0o170000 not in (0, 0o100000, 0o040000)
                kind = "other" if linked else "folder" if item.is_dir() else "file"
                yield item.filename, item.file_size, partial(archive.open, item), kind
        else:
            for member in archive:
                kind = "file" if member.isreg() else "folder" if member.isdir() else "other"
                yield member.name, member.size, partial(_extract, archive, member), kind
    except (*_DAMAGED, OSError) as error:
        raise CheckpointError(f"{source}: expected a whole archive, found: {error}. Fetch it again.") from error


def _read(path: Path) -> Any:
    return open(path, "rb")


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Any:
    stream = archive.extractfile(member)
    assert stream is not None, "only regular files are opened"
    return stream


def _parts(folder: Path) -> list[Path]:
    return [part for part in (locate(folder, file) for file in FILES) if part.is_file()]


def _copy(source: Path, destination: Path) -> None:
    with open(source, "rb") as stream:
        _write_stream(stream, destination)


def _write_stream(stream: Any, path: Path) -> None:
    with open(path, "wb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)
    force_to_disk(path)


def _write_tar(path: Path, mode: str, name: str, folder: Path) -> None:
    """Owner, times and modes are left out: the same checkpoint gives the same bytes (but for a gzip time)."""
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
