"""Where views' calls are run: with the app's models, one user of each at a time, and results that are kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from aotlens.views import Call, View, Workshop
from app.core.errors import RequestError

if TYPE_CHECKING:
    from app.core import Core


class AppWorkshop(Workshop):
    """The app's: at most `kept` results, within its memory, each made once for as long as the weights are the same."""

    def __init__(self, core: Core, kept: int) -> None:
        self._catalog = core.catalog
        self._kept = core.memory.cache(kept)

    def load(self, checkpoint: str) -> Any:
        """The model of a checkpoint."""
        return self._catalog.load(checkpoint).model

    def call(self, node: Call, work: Callable[[], Any]) -> Any:
        """What has been kept of a call, or what `work` gives."""
        weights = tuple(self._catalog.load(name).key for name in node.models)
        return self.keep((node.source, node.stamps, weights), work)

    def keep(self, key: Hashable, work: Callable[[], Any]) -> Any:
        """What has been kept under a key, or what `work` gives."""
        return self._kept.get(key, work)

    def use(self, models: Sequence[str], function: Callable[[], Any]) -> Any:
        """What a function gives that has these models to itself."""
        with ExitStack() as all_of_them:
            for name in sorted(set(models)):
                all_of_them.enter_context(self._catalog.load(name).exclusive)
            return function()

    def result(self, view: View, values: Any) -> Any:
        """A view's result. Raises RequestError for what is missing and for what the library refuses."""
        try:
            return view.result(values, self)
        except ValueError as error:
            raise RequestError(str(error)) from error
