"""Carrying a checkpoint elsewhere: export to one file (or a copy), import from it.

An archive holds the five files of a checkpoint in a folder of its name. Import reads those five names and
nothing else, writes them itself, loads what it wrote, and only then gives it its name, so neither a hostile
nor a damaged archive leaves anything behind.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from aotlens.checkpoints.bounds import opened
from aotlens.checkpoints.errors import CheckpointError
from aotlens.checkpoints.info import CheckpointInfo, read_info
from aotlens.checkpoints.layout import (
    ARCHIVES,
    CONFIG,
    FILES,
    is_checkpoint,
    is_taken,
    locate,
    place,
    replacing,
)
from aotlens.checkpoints.reading import load_folder, verify
from aotlens.checkpoints.snapshots import split_step
from aotlens.checkpoints.unpacking import DAMAGED, entries
from aotlens.checkpoints.writing import save_checkpoint
from aotlens.files import force_to_disk, replacing_file
from aotlens.untrusted import MOST_BYTES, shown


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
                f"{source}: expected plain files inside the archive, found {shown(entry.path)}, a link, a device or a "
                "path that leads out of it. Don't trust it; nothing was written."
            )
        if entry.kind == "folder" or path.name not in FILES:
            continue
        if path in sizes_by_path:
            raise CheckpointError(f"{source}: expected each file once, found {shown(entry.path)} twice.")
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
