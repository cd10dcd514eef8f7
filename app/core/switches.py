"""Heads that are switched off: in what ways, and what stands in their place.

What a head does on other sequences is taken from windows of a corpus, as long as the prompt; of a text that the model
was trained on, they are of what was held out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from aotlens.conventions import ABLATIONS, FROM_OTHERS
from app.core.cache import Cache, Memory
from app.core.catalog import Catalog, LoadedModel
from app.core.corpora import Corpora, Text
from app.core.errors import RequestError
from app.core.settings import Settings

if TYPE_CHECKING:
    from torch import Tensor

    from aotlens.heads import HeadSwitches

How = Literal["zero", "mean", "position_mean", "uniform", "fixed_pattern", "resample"]

#: The ways to ablate a head (what replaces its output), by the library's name (`aotlens.heads.ablation`).
HOWS = ABLATIONS


class Switches:
    """The replacements of a model's heads, of all of them at once and kept: another set asks for no more."""

    def __init__(self, catalog: Catalog, corpora: Corpora, settings: Settings, memory: Memory) -> None:
        self._catalog, self._corpora, self._settings = catalog, corpora, settings
        self._windows: Cache[tuple[str, str, int], Tensor] = memory.cache(16)
        self._switches: Cache[tuple[int, str, str, int], HeadSwitches] = memory.cache(8)

    def text(self, checkpoint: str, how: str, corpus: str | None) -> Text | None:
        """Return the text that a way to switch off reads; None where it reads none. Raises RequestError where it needs
        one."""
        if how not in FROM_OTHERS:
            return None
        if corpus is None:
            raise RequestError(
                f"To ablate by {HOWS[how]} takes other texts: choose a corpus. Without one, heads can be ablated by "
                "zero or by uniform attention."
            )
        text = self._corpora.text(corpus, self._catalog.info(checkpoint))
        if text.corpus is None:
            raise RequestError("A pasted text is not read here: upload it on the page Distillation, or choose another.")
        return text

    def windows(self, loaded: LoadedModel, text: Text, length: int) -> Tensor:
        """Return windows of a text, `[window, length]`, each beginning with the start token."""
        return self._windows.get((loaded.key, text.key, length), lambda: self._cut(loaded, text, length))

    def of(self, loaded: LoadedModel, how: How, text: Text | None, length: int) -> HeadSwitches:
        """Return what switches heads off; its runs are for who has the model to himself."""
        # The model itself, not its weights: one that was let go and loaded again has hooks of its own. Switches keep
        # theirs, so that no other gets its number.
        key = (id(loaded.model), how, "" if text is None else text.key, 0 if text is None else length)
        windows = None if text is None else self.windows(loaded, text, length)
        return self._switches.get(key, lambda: self._prepare(loaded, how, windows))

    def _cut(self, loaded: LoadedModel, text: Text, length: int) -> Tensor:
        from aotlens.data import Encoding, spread_windows

        assert text.corpus is not None
        encoding = Encoding.of(loaded.model.tokenizer, causal=not loaded.model.sees_later_keys)
        names = text.documents or text.corpus.names()
        try:
            return spread_windows(text.corpus, names, encoding, self._settings.reference_windows, length)
        except ValueError as error:
            raise RequestError(f"{text.label} has no window as long as this prompt: {error}") from error

    @staticmethod
    def _prepare(loaded: LoadedModel, how: How, windows: Tensor | None) -> HeadSwitches:
        from aotlens.heads import HeadSwitches

        return HeadSwitches(loaded.model, how, reference=windows)
