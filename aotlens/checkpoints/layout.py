"""The files of a checkpoint folder, and how all of them are replaced at once.

A save replaces five files together, and a process can die (SIGKILL, power) between any two system calls.
Neither ``rename`` nor ``os.replace`` exchanges a folder that has files in it, and renaming the old folder
aside leaves a moment in which nothing has the checkpoint's name. So the folder stays, and the save is a redo
log inside it:

1. every new file is written to ``FOLDER/.incoming/`` and forced to disk (fsync), and so is the listing of it;
2. ``.incoming`` is renamed to ``.commit``. This one atomic step is the save;
3. each file moves from ``.commit/`` to its place in ``FOLDER`` with ``os.replace``, config.json last, and
   the empty ``.commit`` is removed.

A reader takes a file from ``.commit/`` where it is there and from the folder otherwise (`locate`). Killed
before step 2, the folder holds the old checkpoint, untouched; killed after it, `locate` finds every file of
the new one, moved or not. There is no instant in between, and the next save first finishes the moves. Files
that are not ours (the training loop's state) stay where they are. A disk that fills up does so in step 1,
which only adds files.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from aotlens.files import alone_in, force_to_disk
from aotlens.untrusted import read_regular, strict_json


class CheckpointError(ValueError):
    """A checkpoint can't be read, written or found.

    The message names the file, what was expected, what was found, and what to do.
    """


CONFIG = "config.json"
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
METRICS = "metrics.jsonl"
CARD = "card.md"

#: The files of a checkpoint, in the order in which they move into place.
FILES = (WEIGHTS, TOKENIZER, METRICS, CARD, CONFIG)

#: The suffixes of archives of checkpoints.
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".zip")

#: The keys that no other program's config.json holds.
OUR_KEYS = {"schema_version", "weights_sha256"}

_INCOMING = ".incoming"
_COMMIT = ".commit"


def locate(folder: Path, name: str) -> Path:
    """Return the path at which file `name` of the checkpoint in `folder` is now (or would be)."""
    committed = folder / _COMMIT / name
    return committed if committed.exists() else folder / name


def user_folder(kind: str) -> Path:
    """Return the folder of a user's things of a kind: ``$AOTLENS_HOME/KIND``, by default in ``~/.cache/aotlens``."""
    return Path(os.environ.get("AOTLENS_HOME") or "~/.cache/aotlens").expanduser() / kind


def home_folder() -> Path:
    """Return the folder of a user's own checkpoints."""
    return user_folder("checkpoints")


def place(name: str, into: str | Path | None) -> Path:
    """Return the folder of a checkpoint `name` in `into` (None: the home folder). Raises CheckpointError for a bad
    name."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name) or name.endswith(ARCHIVES):
        raise CheckpointError(
            f"name {name!r}: expected up to 100 letters, digits, dots, dashes and underscores, starting "
            "with a letter or digit. Give another with --name."
        )
    return (home_folder() if into is None else Path(into).expanduser()) / name


def is_checkpoint(folder: Path) -> bool:
    """Return whether `folder` has a config.json; that it's a good one is for `read_info` to say."""
    return locate(folder, CONFIG).is_file()


def is_taken(target: Path) -> bool:
    """Return whether something is at `target` that a save, an import or an export would replace.

    What a killed one left behind is nothing: files that were still on their way. Those that had arrived are moved into
    place first.
    """
    if not os.path.lexists(target):
        return False
    if not target.is_dir() or target.is_symlink():
        return True
    inside = {path.name for path in target.iterdir()}
    if _COMMIT in inside:
        with suppress(OSError), _alone(target):
            finish_interrupted(target)
    return not inside <= {_INCOMING}


def is_of_another_program(folder: Path) -> bool:
    """Return whether `folder` has a config.json that is whole and says nothing of what ours say."""
    try:
        stored = strict_json(read_regular(locate(folder, CONFIG), inside=folder))
    except (OSError, ValueError):
        return False
    return isinstance(stored, dict) and not OUR_KEYS & stored.keys()


def fingerprint(folder: Path) -> tuple[tuple[str, int, int, int] | None, ...]:
    """Return what changes when a save commits or moves a file: tells a damaged file from one replaced while we read."""
    stamps: list[tuple[str, int, int, int] | None] = []
    for name in FILES:
        path = locate(folder, name)
        try:
            status = path.stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((str(path), status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(stamps)


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """Yield an empty folder for new files (`write_file`); on leaving, they replace the old ones at once.

    If the body or a write fails, the old files stay as they were. Raises CheckpointError for what the
    operating system refuses. One process at a time may save to a folder.
    """
    created = not folder.exists()
    committed = False
    incoming = folder / _INCOMING
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            try:
                finish_interrupted(folder)
                incoming.mkdir()
                yield incoming
                force_to_disk(incoming)
                os.rename(incoming, folder / _COMMIT)
                committed = True
                force_to_disk(folder)
            finally:
                if not committed:
                    shutil.rmtree(incoming, ignore_errors=True)
                    if created:
                        with suppress(OSError):
                            folder.rmdir()
            # Readers find the new checkpoint now. A failure from here on loses nothing: the next save goes on.
            with suppress(OSError):
                _move_into_place(folder)
    except OSError as error:
        raise _save_error(folder, error) from error


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold off all other saves to `folder` meanwhile, or raise CheckpointError."""
    with alone_in(folder) as alone:
        if not alone:
            raise CheckpointError(
                f"{folder}: another process is saving, importing or exporting there. Wait for it, or choose another "
                "folder."
            )
        yield


def write_file(path: Path, data: bytes) -> None:
    """Write `data` and return once the disk has it."""
    path.write_bytes(data)
    force_to_disk(path)


def finish_interrupted(folder: Path) -> None:
    """End what a killed save left: move what was committed, delete what was not."""
    if (folder / _COMMIT).is_dir():
        _move_into_place(folder)
    if (folder / _INCOMING).exists():
        shutil.rmtree(folder / _INCOMING)


def _move_into_place(folder: Path) -> None:
    commit = folder / _COMMIT
    for name in FILES:
        if (commit / name).exists():
            os.replace(commit / name, folder / name)
    force_to_disk(folder)
    commit.rmdir()


def _save_error(folder: Path, error: OSError) -> CheckpointError:
    reason = error.strerror or str(error)
    try:
        where = next(path for path in (folder, *folder.parents) if path.exists())
        free = f" ({shutil.disk_usage(where).free / 1e6:.1f} MB free there)"
    except (OSError, StopIteration):
        free = ""
    remark = "The checkpoint that was there is whole. " if is_checkpoint(folder) else ""
    return CheckpointError(
        f"{folder}: the checkpoint could not be written: {reason}{free}. {remark}"
        "Free some space, or choose another folder that you may write to, and try again."
    )
