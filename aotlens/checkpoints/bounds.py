"""How large the files of a checkpoint may be, and reading them: regular files only, none beyond its limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from aotlens.checkpoints.errors import CheckpointError
from aotlens.checkpoints.layout import CARD, CONFIG, METRICS, TOKENIZER, locate
from aotlens.untrusted import open_regular

#: The most bytes that a file may have. The weights' size is what their header says.
MOST_BYTES = {CONFIG: 4_000_000, TOKENIZER: 16_000_000, METRICS: 16_000_000, CARD: 4_000_000}

#: The longest header of weights: about 100 bytes a tensor.
MOST_HEADER_BYTES = 4_000_000

#: The most dimensions that a stored tensor may have.
MOST_DIMENSIONS = 8


@contextmanager
def open_part(folder: Path, name: str) -> Iterator[tuple[BinaryIO, int]]:
    """The file `name` of the checkpoint in `folder`, open, and its size in bytes. Raises CheckpointError."""
    with opened(locate(folder, name), folder) as (file, size):
        yield file, size


def read_part(folder: Path, name: str) -> bytes:
    """The bytes of the file `name` of the checkpoint in `folder`, within its limit. Raises CheckpointError."""
    with open_part(folder, name) as (file, size):
        if size > MOST_BYTES[name]:
            raise CheckpointError(
                f"{locate(folder, name)}: expected at most {MOST_BYTES[name] / 1e6:g} MB, found {size / 1e6:.1f} MB."
            )
        return file.read(size)


def read_text(folder: Path, name: str) -> str:
    """The same as UTF-8 text."""
    try:
        return read_part(folder, name).decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(
            f"{locate(folder, name)}: expected UTF-8 text, found {error.object[error.start]:#04x} at byte "
            f"{error.start}."
        ) from None


@contextmanager
def opened(path: Path, folder: Path) -> Iterator[tuple[BinaryIO, int]]:
    """The regular file at `path` of a checkpoint's `folder`, open, and its size. Raises CheckpointError."""
    try:
        with open_regular(path, inside=folder) as (file, size):
            yield file, size
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
