"""Where views' calls are run: with the app's models, one user of each at a time, and results that are kept."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from aotlens.views import Call, View, Workshop
from app.core.errors import RequestError

if TYPE_CHECKING:
    from aotlens.conventions import Progress
    from app.core import Core


class AppWorkshop(Workshop):
    """The app's: at most `kept` results, within its memory, each made once for as long as the weights are the same."""

    def __init__(self, core: Core, kept: int) -> None:
        super().__init__()
        self._catalog, self._settings = core.catalog, core.settings
        self._kept = core.memory.cache(kept)

    def load(self, checkpoint: str) -> Any:
        """The model of a checkpoint."""
        loaded = self._catalog.load(checkpoint)
        return loaded.model if self.progress is None else loaded.copied()

    def call(self, node: Call, work: Callable[[], Any]) -> Any:
        """What has been kept of a call, or what `work` gives."""
        return self.keep(self._key(node), work)

    def _key(self, node: Call) -> Hashable:
        return node.source, node.stamps, tuple(self._catalog.load(name).key for name in node.models)

    def told(self, progress: Progress) -> AppWorkshop:
        """The same for long work: it says how far it is, and runs copies of models while others use the originals."""
        other = copy.copy(self)
        other.progress = progress
        return other

    def keep(self, key: Hashable, work: Callable[[], Any]) -> Any:
        """What has been kept under a key, or what `work` gives."""
        return self._kept.get(key, work)

    def use(self, models: Sequence[str], function: Callable[[], Any]) -> Any:
        """What a function gives that has these models to itself."""
        if self.progress is not None:  # they are copies
            return function()
        with ExitStack() as all_of_them:
            for name in sorted(set(models)):
                all_of_them.enter_context(self._catalog.load(name).exclusive)
            return function()

    def watch(self) -> Progress | None:
        """What long work tells; what a request computes is stopped when it has had its time."""
        if self.progress is not None:
            return self.progress
        seconds = self._settings.request_seconds
        ends = time.monotonic() + seconds

        def tell(done: int, total: int) -> None:
            if time.monotonic() > ends:
                raise RequestError(
                    f"Stopped after {seconds:.0f} seconds, {done:,} of {total:,} steps done, the longest that one "
                    "request may take. Choose a smaller model, or let the command line do it (aotlens view)."
                )

        return tell

    def known(self, view: View, values: Any) -> bool:
        """Whether a view's result is kept."""
        return view.missing(values) is None and self._kept.known(self._key(view.call(values))) is not None

    def waits(self, view: View, values: Any) -> bool:
        """Whether a view's result is to be started first: it takes long, or where its cost is known, more operations
        than one request may take, and it is not kept."""
        if not view.slow or view.missing(values) is not None:
            return False
        cost = view.cost(values)
        return not 0 < cost <= self._settings.max_operations and not self.known(view, values)

    def result(self, view: View, values: Any) -> Any:
        """A view's result. Raises RequestError for what is missing, for what the library refuses, and for what takes
        long and has not been made."""
        if self.progress is None and self.waits(view, values):
            raise RequestError("This takes long and has not been made for this choice: start it first.")
        cost, most = view.cost(values), self._settings.max_operations
        if cost > most and self.progress is None and not self.known(view, values):
            raise RequestError(
                f"This would take about {cost:.0e} operations, and one request may take {most:.0e} "
                f"({cost / most:.3g} times less). Choose a smaller model, or let the command line do it (aotlens view)."
            )
        try:
            return view.result(values, self)
        except ValueError as error:
            raise RequestError(str(error)) from error
