"""The execution of views' calls: with the app's models, one user of each at a time, and results that are kept."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aotlens.views import Call, View, Workshop
from aotlens.views.calls import Node
from app.core.errors import RequestError
from app.core.limits import deadline, require_at_most

if TYPE_CHECKING:
    from aotlens.conventions import Progress
    from app.core import Core


class AppWorkshop(Workshop):
    """The app's: at most `kept` results, within its memory, each made once for as long as the weights are the same."""

    def __init__(self, core: Core, kept: int) -> None:
        super().__init__()
        self._catalog, self._corpora, self._settings = core.catalog, core.corpora, core.settings
        self._images = core.images
        self.max_export_bytes = core.settings.max_export_bytes
        self._kept = core.memory.cache(kept)

    def load(self, checkpoint: str) -> Any:
        """Return the model of a checkpoint."""
        loaded = self._catalog.load(checkpoint)
        return loaded.model if self.progress is None else loaded.copied()

    def call(self, node: Call, work: Callable[[], Any]) -> Any:
        """Return a text, images or a checkpoint's card as the app has them; else what has been kept of a call, or what
        `work` gives."""
        if node.function == "aotlens.data.open_corpus" and node.stamp:
            return self._corpora.opened(node.stamp)
        if node.function == "aotlens.data.images.open_images" and node.stamp:
            return self._images.opened(node.stamp, (node.options or {})["size"])
        if node.function == "aotlens.checkpoints.find_checkpoint":
            return self._catalog.info(node.args[0])
        return self.keep(self._key(node), work)

    def _key(self, node: Node) -> Hashable:
        return node.source, node.stamps, tuple(self._catalog.load(name).key for name in node.models)

    def told(self, progress: Progress) -> AppWorkshop:
        """Return the workshop for long work, which says how far it is, and runs copies of models that others use."""
        other = copy.copy(self)
        other.progress = progress
        return other

    def keep(self, key: Hashable, work: Callable[[], Any]) -> Any:
        """Return what has been kept under a key, or what `work` gives."""
        return self._kept.get(key, work)

    def use(self, models: Sequence[str], function: Callable[[], Any]) -> Any:
        """Return what a function gives that has these models to itself."""
        if self.progress is not None:  # they are copies
            return function()
        with ExitStack() as all_of_them:
            for name in sorted(set(models)):
                all_of_them.enter_context(self._catalog.load(name).exclusive)
            return function()

    def watch(self) -> Progress | None:
        """Return the callback of long work; what a request computes is stopped when it has had its time."""
        if self.progress is not None:
            return self.progress
        return deadline(self._settings.request_seconds)

    def known(self, view: View, values: Any) -> bool:
        """Return whether a view's result is kept, or the part of it that takes long."""
        part = view.slow_part or view.call
        return view.missing(values) is None and self._kept.known(self._key(part(values))) is not None

    def waits(self, view: View, values: Any) -> bool:
        """Return whether a view's result is to be started first: it takes long, or where its cost is known, more
        operations than one request may take, and it is not kept."""
        if not view.slow or view.missing(values) is not None:
            return False
        cost = view.cost(values)
        return not 0 < cost <= self._settings.max_operations and not self.known(view, values)

    def result(self, view: View, values: Any) -> Any:
        """Return a view's result. Raises RequestError for what is missing, for what the library refuses, and for what
        takes long and has not been made."""
        if self.progress is None and self.waits(view, values):
            raise RequestError("This takes long and has not been made for this choice: start it first.")
        if view.missing(values) is None and not self.known(view, values):
            self._require_affordable(view, values)
        try:
            return view.result(values, self)
        except ValueError as error:
            raise RequestError(str(error)) from error

    def _require_affordable(self, view: View, values: Any) -> None:
        """Raises RequestError for what takes more operations than a request may, or holds more than there is room for
        in the background either; of texts, with how many tokens fit."""
        texts = getattr(values, "texts", ())
        if texts:
            model = self._catalog.load(values.checkpoint).model
            try:
                values = replace(values, n_tokens=max(model.to_tokens(text).shape[1] for text in texts))
            except ValueError as error:
                raise RequestError(str(error)) from error
        limits = [(view.held, self._settings.max_held_bytes, "bytes")]
        if self.progress is None:
            limits.append((view.cost, self._settings.max_operations, "operations"))
        for estimate, most, of in limits:
            amount = estimate(values)
            fits = _fitting(estimate, most, values) if amount > most and texts else 0
            shorter = f"a text of at most {fits:,} tokens (this has {values.n_tokens:,}), or " if fits else ""
            require_at_most(amount, most, of, choose=f"{shorter}a smaller model")


def _fitting(estimate: Callable[[Any], float], most: float, values: Any) -> int:
    """The most tokens of which `estimate` is at most `most`; 0 for none."""
    return bisect_right(range(1, values.n_tokens), most, key=lambda n: estimate(replace(values, n_tokens=n)))
