"""The listing of checkpoints, and their models, each loaded once.

Models are found by the names of the listing only: a name in an address never becomes a path.
"""

from __future__ import annotations

import builtins
import copy
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from aotlens.checkpoints import CheckpointError, CheckpointInfo, list_checkpoints
from aotlens.checkpoints.reading import snapshot_info
from aotlens.views.family import reads_tokens
from aotlens.views.regression import regresses
from app.core.cache import Cache, Memory
from app.core.errors import RequestError
from app.core.reading import Reading
from app.core.settings import Settings

if TYPE_CHECKING:
    from aotlens.models import AttentionOnlyTransformer

Value = TypeVar("Value")

#: What to do without a checkpoint, and the message of a page that no checkpoint fits.
GET_ONE = (
    "Train one (aotlens train --help), import one (aotlens checkpoints import FOLDER --name mine), or start the app "
    "with --checkpoints DIR, a folder that has one."
)
NO_CHECKPOINT = f"No checkpoint here fits this page. {GET_ONE}"


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadedModel:
    """A model, and a lock with which the app lets one thread at a time run it."""

    model: AttentionOnlyTransformer
    exclusive: threading.Lock
    key: str
    """The key, which changes when the weights do, so that a checkpoint trained again isn't served from a cache."""

    def copied(self) -> AttentionOnlyTransformer:
        """Return a copy of the model, which runs for minutes while others use the original."""
        with self.exclusive:
            return copy.deepcopy(self.model)


class Catalog:
    """The checkpoints of the given folders, the user's own and the bundled ones; and models that this process holds."""

    def __init__(
        self, settings: Settings, memory: Memory, models: Mapping[str, AttentionOnlyTransformer] | None = None
    ) -> None:
        """Raises ValueError for `models` that are none of ours."""
        self._settings = settings
        self._reading = Reading(settings.reading_seconds)
        self._live = {name: _live(name, model) for name, model in (models or {}).items()}
        self._listing: tuple[float, list[CheckpointInfo]] | None = None
        self._models: Cache[tuple[str, str], LoadedModel] = memory.cache(settings.max_models)

    def list(self) -> builtins.list[CheckpointInfo]:
        """List all checkpoints, live and given ones first, broken ones last; at most `listing_seconds` old."""
        now = time.monotonic()
        if self._listing is None or now - self._listing[0] > self._settings.listing_seconds:
            self._listing = (now, self._read())
        live = [info for info, _ in self._live.values()]
        return live + [self._answering(info) for info in self._listing[1] if info.name not in self._live]

    def _answering(self, info: CheckpointInfo) -> CheckpointInfo:
        """A checkpoint as it was listed, unless somebody has waited in vain for its files since then."""
        if info.problem is not None or not self._reading.is_silent(info.name):
            return info
        return replace(info, problem=self._reading.problem(info.name))

    def _read(self) -> builtins.list[CheckpointInfo]:
        checkpoints = list_checkpoints(self._settings.checkpoints, vanished=True)  # they were there at the start
        given = [folder.expanduser().absolute() for folder in self._settings.checkpoints]

        def order(info: CheckpointInfo) -> tuple[bool, bool]:
            path = info.path.absolute() if info.path else None
            ours = path is not None and any(folder == path or folder in path.parents for folder in given)
            return info.problem is not None, not ours

        return sorted(checkpoints, key=order)

    def info(self, name: str | None) -> CheckpointInfo:
        """Return the checkpoint of that name, broken or not; NAME@STEP is a snapshot of the run that trained NAME.

        Raises RequestError for an unknown name, and for None, the first choice of a page that no checkpoint fits.
        """
        if name is None:
            raise RequestError(NO_CHECKPOINT)
        known = self.list()
        for info in known:
            if info.name == name:
                return info
        run, _, step = str(name or "").rpartition("@")
        trained = next((info for info in known if info.name == run and info.problem is None and info.path), None)
        if trained is not None and step.isascii() and step.isdigit() and len(step) < 10:
            try:
                return self.read(trained, f"snapshot {step}", lambda: snapshot_info(trained, int(step)))
            except CheckpointError as error:
                raise RequestError(str(error)) from error
        names = ", ".join(info.name for info in known) or "none"
        raise RequestError(f"No checkpoint is called {name!r}. There are: {names}. Choose one of them.")

    def has(self, name: str, among: Sequence[str]) -> bool:
        """Return whether a name is one of these checkpoints, or a snapshot of one of them."""
        try:
            return name in among or (name.rpartition("@")[0] in among and self.info(name).problem is None)
        except RequestError:
            return False

    def default(self) -> str | None:
        """Return the one that the settings name, if it's there; else the first that reads text and isn't broken."""
        usable = [info.name for info in self.list() if self.reads_text(info)]
        preferred = self._settings.first_checkpoint
        return preferred if preferred in usable else next(iter(usable), None)

    def config(self, name: str | None) -> dict[str, Any]:
        """Return the model's configuration of the checkpoint of that name; empty where it isn't there or is broken."""
        run = (name or "").rpartition("@")[0]  # a snapshot has the configuration of the checkpoint
        names = {name, run} if run else {name}
        return next((info.model for info in self.list() if info.name in names and info.problem is None), {})

    def shape(self, name: str | None) -> tuple[int, int] | None:
        """Return layers and heads a layer of the checkpoint of that name; None where it isn't there or is broken."""
        model = self.config(name)
        layers, heads = model.get("n_layers"), model.get("n_heads")
        return None if layers is None or heads is None else (int(layers), int(heads))

    @staticmethod
    def reads_text(info: CheckpointInfo) -> bool:
        """Return whether the Heads page can show it: text, symbols, or ids where it has no tokenizer."""
        return info.problem is None and reads_tokens(info)

    @staticmethod
    def reads_images(info: CheckpointInfo) -> bool:
        """Return whether the Images page can show it: image patches in, classes out."""
        ends = info.model.get("read_in"), info.model.get("read_out")
        return info.problem is None and ends == ("patches", "classes")

    @staticmethod
    def regresses(info: CheckpointInfo) -> bool:
        """Return whether the Regression page can show it: vectors in, one number out, later tokens unseen."""
        return info.problem is None and regresses(info)

    def page_of(self, info: CheckpointInfo) -> str | None:
        """Return the name of the page that shows a checkpoint's heads; None where none does."""
        pages = {"heads": self.reads_text, "images": self.reads_images, "regression": self.regresses}
        return next((page for page, shows in pages.items() if shows(info)), None)

    def need_text(self, name: str | None) -> None:
        """Raise RequestError for a checkpoint that reads no text, and say where it can be looked at."""
        info = self.info(name)
        if info.problem is not None or self.reads_text(info):
            return
        if self.reads_images(info):
            raise RequestError(
                f"{info.name} reads images, not text, and this view is of a text: the page Images shows its heads and "
                "its paths. Choose a checkpoint with a tokenizer here."
            )
        if self.regresses(info):
            raise RequestError(
                f"{info.name} reads prompts of in-context regression, not text, and this view is of a text: the page "
                "Regression shows its heads and its layers. Choose a checkpoint with a tokenizer here."
            )
        raise RequestError(f"The checkpoint {info.name} doesn't read text; choose one with a tokenizer.")

    def load(self, name: str | None) -> LoadedModel:
        """Return its model, from memory if it's there."""
        info = self.info(name)
        if info.name in self._live:
            return self._live[info.name][1]
        if info.problem is not None:
            raise RequestError(f"The checkpoint {info.name} can't be opened. {info.problem}")
        key = info.name, info.weights_sha256
        cached = self._models.known(key)
        if cached is not None:
            return cached
        return self.read(info, "weights", lambda: self._models.get(key, lambda: self._load(info)))

    def read(self, info: CheckpointInfo, part: str, read: Callable[[], Value]) -> Value:
        """Return what `read` gives of a part of a checkpoint's files. Raises RequestError if a drive doesn't answer."""
        return self._reading.wait(info.name, part, read)

    def _load(self, info: CheckpointInfo) -> LoadedModel:
        # Imported here: torch and TransformerLens take seconds, and listing checkpoints needs neither.
        from aotlens.checkpoints import load_folder

        assert info.path is not None
        model = with_words(load_folder(info.path, self._settings.device))
        return LoadedModel(model=model, exclusive=threading.Lock(), key=f"{info.name}:{info.weights_sha256}")


def with_words(model: AttentionOnlyTransformer) -> AttentionOnlyTransformer:
    """Return the model, or, where it has no tokenizer, one of the same weights whose words are its ids."""
    from aotlens.data import SymbolTokenizer

    if model.tokenizer is not None or model.cfg.read_in != "tokens" or model.cfg.d_vocab is None:
        return model
    named = copy.copy(model)  # a script's own model stays as it is
    named.tokenizer = SymbolTokenizer.numbers(model.cfg.d_vocab)
    return named


def _live(name: str, model: AttentionOnlyTransformer) -> tuple[CheckpointInfo, LoadedModel]:
    """Describe a model that this process holds, by what it is and its weights as they are now."""
    from aotlens.files import contents_hash
    from aotlens.models import require_ours

    require_ours(model, f"the app's model {name!r}")
    sha256 = contents_hash(model.state_dict(), {})
    card = getattr(model, "card", None) or CheckpointInfo(name=name)
    info = replace(
        card, name=name, model=model.cfg.to_dict(), weights_sha256=sha256, path=None, problem=None,
        n_weights=sum(parameter.numel() for parameter in model.parameters()),
        note="it is held by the process that serves the app; its weights are those of the time when it was given",
    )  # fmt: skip
    return info, LoadedModel(model=with_words(model), exclusive=threading.Lock(), key=f"{name}:{sha256}")
