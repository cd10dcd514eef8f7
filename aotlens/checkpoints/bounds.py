"""Opening the files of a checkpoint: regular ones only, each within its limit, and every failure a CheckpointError."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from aotlens.checkpoints.errors import CheckpointError
from aotlens.checkpoints.layout import locate
from aotlens.untrusted import open_regular, read_regular


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
