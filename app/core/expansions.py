"""A prompt's logits and scores as sums over paths, remembered.

Every forward pass has its model to itself (inference.py). What is expanded holds copies of the weights, so that asking
for another target runs no model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.core.cache import Cache, Memory
from app.core.catalog import Catalog, LoadedModel
from app.core.errors import RequestError
from app.core.inference import Inference
from app.core.limits import require_at_most
from app.core.settings import Settings

if TYPE_CHECKING:
    from aotlens.paths import PathExpansion


#: The cost of an expansion and the sum of all its paths: passes over the prompt, of whose operations, products of large
#: matrices, ten cost as much as one of others; and bytes for each position and output. Patterns are bounded by
#: `Inference.token_limit`.
_PASSES, _STREAMED, _BYTES_OF_OUTPUT = 8, 0.1, 8.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Expanded:
    """One prompt in one model."""

    key: str
    expansion: PathExpansion
    loaded: LoadedModel
    """The model that the expansion runs again, and its lock."""


class Expansions:
    """Prompts expanded into paths."""

    def __init__(self, catalog: Catalog, inference: Inference, memory: Memory, settings: Settings) -> None:
        self._catalog, self._inference, self._settings = catalog, inference, settings
        self._expanded: Cache[str, Expanded] = memory.cache(grows=True)

    def of(self, checkpoint: str | None, text: str) -> Expanded:
        """Return a prompt's expansion. Raises RequestError for text that `Inference` refuses, and for what would take
        more operations or memory than one request may."""
        self._catalog.need_text(checkpoint)
        loaded, tokens = self._inference.tokens(checkpoint, text)
        assert checkpoint is not None
        key = hashlib.sha256(f"{loaded.key}:{tokens}".encode()).hexdigest()[:24]
        return self._expanded.get(key, lambda: self._expand(key, checkpoint, loaded, tokens))

    def _expand(self, key: str, checkpoint: str, loaded: LoadedModel, tokens: Sequence[int]) -> Expanded:
        import torch

        from aotlens.paths import expand
        from aotlens.views.view import pass_cost

        cfg, n_pos = loaded.model.cfg, len(tokens)
        outputs = n_pos * (cfg.d_vocab or 0)
        products = _PASSES * pass_cost(cfg.to_dict(), n_pos) + 2.0 * (cfg.n_layers + 2) * outputs * cfg.d_model
        shorter = "a shorter text, or a smaller model"
        require_at_most(_STREAMED * products, self._settings.max_operations, "operations", choose=shorter)
        require_at_most(_BYTES_OF_OUTPUT * outputs, self._settings.max_held_bytes, "bytes", choose=shorter)
        try:
            with loaded.exclusive:
                expansion = expand(loaded.model, torch.tensor(tokens), split_sources=True)
        except ValueError as error:  # such as logits that aren't finite
            raise RequestError(f"{checkpoint} can't be expanded on this text: {error}") from error
        return Expanded(key=key, expansion=expansion, loaded=loaded)
