"""The listing of checkpoints, and loading one by name.

A name is the name of a checkpoint's folder. They are looked for in the bundled folder, then in
``$AOTLENS_HOME/checkpoints`` (``~/.cache/aotlens/checkpoints``), then in folders that the caller gives. Where
a name appears twice the later place wins, and its `note` says what it hides.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal

from aotlens.checkpoints.external import EXTERNAL_SUFFIXES, load_external
from aotlens.checkpoints.info import CheckpointInfo, read_info
from aotlens.checkpoints.layout import (
    CONFIG,
    WEIGHTS,
    CheckpointError,
    home_folder,
    is_checkpoint,
    is_of_another_program,
    locate,
)
from aotlens.checkpoints.reading import load_folder, snapshot_info
from aotlens.checkpoints.snapshots import split_step
from aotlens.untrusted import without_control

if TYPE_CHECKING:
    import torch
    from torch import nn

    from aotlens.data import Windows
    from aotlens.interop.external.checking import Check
    from aotlens.models import AttentionOnlyTransformer, ModelConfig


#: The seconds that a place may stay silent before it counts as gone.
SECONDS_TO_ANSWER = 5.0

#: The threads that still wait for a place.
_asked: dict[Path, threading.Thread] = {}


def bundled_folder() -> Path:
    """Return the folder of the checkpoints that come with aotlens."""
    return Path(__file__).parent / "bundled"


def list_checkpoints(folders: Iterable[str | Path] = (), *, vanished: bool = False) -> list[CheckpointInfo]:
    """Return every checkpoint by name, in the order of the places above and alphabetically within one.

    Each of `folders` is a checkpoint or a folder of checkpoints. No weights are read and torch is not
    imported. One that can't be read has `.problem` set, and so has a place that does not answer, such as a drive that
    is not there any more. Raises CheckpointError for one of `folders` that doesn't exist; with `vanished` it is listed
    with that as its problem.
    """
    by_name: dict[str, CheckpointInfo] = {}
    for info in _everywhere(folders, vanished):
        hidden, path = by_name.pop(info.name, None), info.path
        if hidden is not None and hidden.path is not None and path is not None and not _same(hidden.path, path):
            note = f"hides the checkpoint of the same name at {hidden.path}"
            info = dataclasses.replace(info, note=f"{info.note}; {note}" if info.note else note)
        by_name[info.name] = info
    return list(by_name.values())


def find_checkpoint(name_or_path: str | Path, folders: Iterable[str | Path] = ()) -> CheckpointInfo:
    """Return the checkpoint of that name, or else at that path; ./NAME is always a path. NAME@STEP is a snapshot of the
    run that trained NAME.

    Raises CheckpointError, listing the names there are, if there is none.
    """
    path = Path(name_or_path).expanduser()
    known = {info.name: info for info in list_checkpoints(folders)}
    is_name = isinstance(name_or_path, str) and path.name == name_or_path
    if is_name and name_or_path in known:
        return known[str(name_or_path)]
    run, step = split_step(path)
    if step is not None:
        return snapshot_info(find_checkpoint(run.name if is_name else run, folders), step)
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
    source: str | Path | nn.Module,
    device: str | torch.device = "auto",
    *,
    folders: Iterable[str | Path] = (),
    weights: str | None = None,
    config: ModelConfig | Mapping[str, Any] | None = None,
    key_map: Mapping[str, str | None] | None = None,
    check: Check | None = None,
) -> AttentionOnlyTransformer:
    """Return the model of that name or at that path (see `find_checkpoint`; `NAME@STEP` is one of a run's snapshots),
    or one that somebody else saved.

    It is float32, in eval mode, and has `.tokenizer`, `.cfg`, `.card` and `.unigram_counts`.

    `source` may also be what others save; nothing in it is executed:

    - a folder or file of TransformerLens's old format, with or without config.json, or a pickled `HookedTransformer`
    - a folder of Hugging Face's GPT-2 or ViT, and nanoGPT's ckpt.pt
    - a state dict of any names, with `config=` (a `ModelConfig` or its fields) and `key_map=` ({their name: our name};
      `*` for layers, `.T` behind ours where theirs is `[out, in]`, `attn.W_QKV` for all three side by side, `[2:]` for
      some rows of theirs, None to leave out)
    - a folder of Hugging Face's BERT, which comes as a `TransformerBridge`
    - `hf:OWNER/NAME`, the same from the hub or its cache
    - a model of `transformers` in memory, as the folder that it would save, compared with itself; another
      `torch.nn.Module`, as its state dict

    `config=` also says what shapes do not tell, in the format's own words ({"n_head": 12}); `weights` names the file in
    a folder of several. `check=(tokens, logits)`, a few of the source's logits, is compared with the model's in
    float32; without it a model that `key_map=` describes comes with a warning.

    Raises CheckpointError for an unknown name and for whatever is wrong with the files: what was looked for, what was
    found, and what to do; for logits that differ from the source's by more than 1e-4 of the largest; and for a `check`
    of one of our own checkpoints.
    """
    is_given = not (weights is None and config is None and key_map is None)
    if is_given or not isinstance(source, str | os.PathLike) or is_external(source, folders):
        return load_external(source, device, weights=weights, config=config, key_map=key_map, check=check)
    if check is not None:
        raise CheckpointError(
            f"{source}: check= is for models that others saved; a checkpoint has its weights' SHA-256."
        )
    info = find_checkpoint(source, folders)
    assert info.path is not None
    model = load_folder(info.path, device)
    model.card = dataclasses.replace(model.card, note=info.note)
    return model


def is_external(source: str | Path, folders: Iterable[str | Path] = ()) -> bool:
    """Return whether `source` is of the hub, or a file or folder that another program wrote, and no name of a
    checkpoint."""
    name, path = str(source), Path(source).expanduser()
    if name.startswith("hf:"):
        return True
    if path.name == name and isinstance(source, str) and any(info.name == name for info in list_checkpoints(folders)):
        return False
    match _kind(path):
        case "file":
            ours = path.name == WEIGHTS and is_checkpoint(path.parent) and not is_of_another_program(path.parent)
            return path.suffix in EXTERNAL_SUFFIXES and not ours
        case "folder" if is_checkpoint(path):
            return is_of_another_program(path)
        case "folder":
            with suppress(OSError):  # a folder that we may not look into
                return any(child.suffix in EXTERNAL_SUFFIXES and child.name != WEIGHTS for child in path.iterdir())
    return False


def _everywhere(folders: Iterable[str | Path], vanished: bool) -> Iterator[CheckpointInfo]:
    for place in (bundled_folder(), home_folder()):
        yield from _in_time(place, partial(_infos, place))
    for folder in folders:
        path = Path(folder).expanduser()
        yield from _in_time(path, partial(_infos, path, named=True, vanished=vanished))


def _infos(place: Path, named: bool = False, vanished: bool = False) -> Iterator[Path | CheckpointInfo]:
    """The paths of a place's checkpoints, then what each says. Only a `named` one must exist."""
    if _kind(place) != "folder":
        if named:
            problem = f"{place}: expected a checkpoint or a folder of checkpoints, found no folder."
            if not vanished:
                raise CheckpointError(problem)
            yield _damaged(place, problem)
        return
    try:
        paths = [place] if named and _looks_like_one(place) else _checkpoints_in(place)
    except CheckpointError as error:
        if named and not vanished:
            raise
        yield _damaged(place, str(error))
        return
    yield from paths
    yield from map(_read_or_problem, paths)


def _in_time(place: Path, read: Callable[[], Iterator[Path | CheckpointInfo]]) -> Iterator[CheckpointInfo]:
    """Yield `place`'s checkpoints; a thread asks, since a drive that is gone never answers."""
    answers: SimpleQueue[Path | CheckpointInfo | Exception | None] = SimpleQueue()

    def ask() -> None:
        try:
            for item in read():
                answers.put(item)
            answers.put(None)
        except Exception as error:
            answers.put(error)

    silent = f"{place}: did not answer within {SECONDS_TO_ANSWER:g} seconds. Is its drive still there?"
    thread = _asked.get(place)
    if thread is not None and thread.is_alive():
        yield _damaged(place, silent)
        return
    thread = threading.Thread(target=ask, name=f"listing {place}", daemon=True)
    thread.start()
    waiting: list[Path] = []
    while True:
        try:
            item = answers.get(timeout=SECONDS_TO_ANSWER)
        except Empty:
            _asked[place] = thread
            yield from (_damaged(path, silent) for path in waiting or [place])
            return
        match item:
            case None:
                _asked.pop(place, None)
                return
            case Exception():
                raise item
            case Path():
                waiting.append(item)
            case _:
                if waiting:
                    waiting.pop(0)
                yield item


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
    """Return whether it has a checkpoint's names; weights without config.json are listed as broken."""
    try:
        return path.is_dir() and any(os.path.lexists(locate(path, name)) for name in (CONFIG, WEIGHTS))
    except OSError:  # a folder that we may not look into
        return False


def _read_or_problem(path: Path) -> CheckpointInfo:
    try:
        return read_info(path)
    except (CheckpointError, OSError) as error:
        return _damaged(path.resolve(), str(error), named_path=path)


def _damaged(path: Path, problem: str, named_path: Path | None = None) -> CheckpointInfo:
    """A place or a checkpoint of which nothing can be told but its name and what is wrong."""
    return CheckpointInfo(name=without_control(path.absolute().name), path=named_path or path, problem=problem)


def _same(path: Path, other: Path) -> bool:
    """Whether two paths lead to one folder. Links are not followed for it: a drive that is gone would not answer."""
    return os.path.abspath(path) == os.path.abspath(other)


def _advice(known: dict[str, CheckpointInfo]) -> str:
    names = ", ".join(known) if known else "none"
    return f"Checkpoints here: {names}. Give one of these names, or the path of a checkpoint's folder."


def shared_held_out_windows(
    models: Sequence[AttentionOnlyTransformer], corpus: str, n_windows: int, length: int | None = None
) -> Windows:
    """Cut `n_windows` windows, spread over a corpus, of documents that none of the models was trained on.

    `corpus` is a name as `aotlens.data.open_corpus` takes it. Windows have `length` tokens, at most as many as every
    model reads (None: as many), by the first model's tokenizer. Raises `ValueError` as `open_corpus` and
    `aotlens.data.windows_with_documents`, for a model of another library, and where each document was training text of
    some model.
    """
    from aotlens.data import Encoding, open_corpus, windows_with_documents
    from aotlens.models import require_ours

    for model in models:
        require_ours(model, "shared_held_out_windows")
    source = open_corpus(corpus)
    names = source.names()
    held_out = [set(model.card.held_out(names)) for model in models if model.card is not None]
    left = tuple(name for name in names if all(not documents or name in documents for documents in held_out))
    if not left:
        raise ValueError(f"{corpus}: expected a document that none of the models was trained on, found none.")
    longest = min(model.cfg.n_ctx for model in models)
    size = longest if length is None else min(length, longest)
    return windows_with_documents(source, left, Encoding.of(models[0].tokenizer), n_windows, size)
