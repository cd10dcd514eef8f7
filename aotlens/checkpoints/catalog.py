"""Which checkpoints there are, and loading one by name.

A name is the name of a checkpoint's folder. They are looked for in the bundled folder, then in
``$AOTLENS_HOME/checkpoints`` (``~/.cache/aotlens/checkpoints``), then in folders that the caller gives. Where
a name appears twice the later place wins, and its `note` says what it hides.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from aotlens.checkpoints.errors import CheckpointError
from aotlens.checkpoints.info import CheckpointInfo, read_info
from aotlens.checkpoints.layout import WEIGHTS, is_checkpoint
from aotlens.checkpoints.reading import load_folder

if TYPE_CHECKING:
    import torch

    from aotlens.models import AttentionOnlyTransformer


def bundled_folder() -> Path:
    """The checkpoints that come with aotlens."""
    return Path(__file__).parent / "bundled"


def home_folder() -> Path:
    """A user's own checkpoints: ``$AOTLENS_HOME/checkpoints``, by default in ``~/.cache/aotlens``."""
    return Path(os.environ.get("AOTLENS_HOME") or "~/.cache/aotlens").expanduser() / "checkpoints"


def list_checkpoints(folders: Iterable[str | Path] = ()) -> list[CheckpointInfo]:
    """Every checkpoint by name, in the order of the places above and alphabetically within one.

    Each of `folders` is a checkpoint or a folder of checkpoints. No weights are read and torch is not
    imported. One that can't be read has `.problem` set. Raises CheckpointError for a folder that doesn't
    exist.
    """
    by_name: dict[str, CheckpointInfo] = {}
    for path in _candidates(folders):
        info = _read_or_problem(path)
        hidden = by_name.pop(info.name, None)
        if hidden is not None and hidden.path is not None and hidden.path.resolve() != path.resolve():
            note = f"hides the checkpoint of the same name at {hidden.path}"
            info = dataclasses.replace(info, note=f"{info.note}; {note}" if info.note else note)
        by_name[info.name] = info
    return list(by_name.values())


def find_checkpoint(name_or_path: str | Path, folders: Iterable[str | Path] = ()) -> CheckpointInfo:
    """The checkpoint of that name, or else at that path; ./NAME is always a path.

    Raises CheckpointError, listing the names there are, if there is none.
    """
    path = Path(name_or_path).expanduser()
    known = {info.name: info for info in list_checkpoints(folders)}
    is_name = isinstance(name_or_path, str) and path.name == name_or_path
    if is_name and name_or_path in known:
        return known[str(name_or_path)]
    kind = _kind(path)
    if kind == "folder":
        if not is_checkpoint(path):
            inside = ", ".join(child.name for child in _checkpoints_in(path))
            advice = f"It holds the checkpoints {inside}: give one of them." if inside else _advice(known)
            raise CheckpointError(f"{path}: expected a checkpoint, found a folder without config.json. {advice}")
        return _read_or_problem(path)
    if kind == "file":
        raise CheckpointError(
            f"{path}: expected a checkpoint's folder, found a file. Give {path.parent}/ if it is part of a "
            "checkpoint, or bring an archive in with `aotlens checkpoints import`."
        )
    near = difflib.get_close_matches(str(name_or_path), known, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise CheckpointError(f"no checkpoint or folder is called {str(name_or_path)!r}.{hint} {_advice(known)}")


def load(
    name_or_path: str | Path, device: str | torch.device = "auto", *, folders: Iterable[str | Path] = ()
) -> AttentionOnlyTransformer:
    """The model of that name or at that path (see `find_checkpoint`).

    It is float32, in eval mode, and has `.tokenizer`, `.cfg`, `.card` and `.unigram_counts`. Raises
    CheckpointError for an unknown name and for whatever is wrong with the files.
    """
    info = find_checkpoint(name_or_path, folders)
    assert info.path is not None
    model = load_folder(info.path, device)
    model.card = dataclasses.replace(model.card, note=info.note)
    return model


def _candidates(folders: Iterable[str | Path]) -> Iterator[Path]:
    for place in (bundled_folder(), home_folder()):
        if place.is_dir():
            yield from _checkpoints_in(place)
    for folder in folders:
        path = Path(folder).expanduser()
        if _kind(path) != "folder":
            raise CheckpointError(f"{path}: expected a checkpoint or a folder of checkpoints, found no folder.")
        if _looks_like_one(path):
            yield path
        else:
            yield from _checkpoints_in(path)


def _checkpoints_in(folder: Path) -> list[Path]:
    try:
        children = sorted(folder.iterdir())
    except OSError as error:
        raise CheckpointError(f"{folder}: can't be read: {error.strerror or error}.") from error
    return [child for child in children if not child.name.startswith(".") and _looks_like_one(child)]


def _kind(path: Path) -> Literal["folder", "file"] | None:
    try:
        return "folder" if path.is_dir() else "file" if path.is_file() else None
    except OSError:  # a name that is too long, or a folder that we may not look into
        return None


def _looks_like_one(path: Path) -> bool:
    """Weights without config.json count too: their owner should see them listed as broken."""
    try:
        return path.is_dir() and (is_checkpoint(path) or (path / WEIGHTS).is_file())
    except OSError:  # a folder that we may not look into
        return False


def _read_or_problem(path: Path) -> CheckpointInfo:
    try:
        return read_info(path)
    except (CheckpointError, OSError) as error:
        return CheckpointInfo(name=path.resolve().name, path=path, problem=str(error))


def _advice(known: dict[str, CheckpointInfo]) -> str:
    names = ", ".join(known) if known else "none"
    return f"Checkpoints here: {names}. Give one of these names, or the path of a checkpoint's folder."
