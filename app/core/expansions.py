"""A prompt's logits and scores as sums over paths, remembered.

Every forward pass has its model to itself (inference.py). What is expanded holds copies of the weights, so that asking
for another target runs no model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from app.core.cache import Cache, Memory
from app.core.catalog import Catalog, LoadedModel
from app.core.errors import RequestError
from app.core.inference import Inference
from app.core.limits import require_at_most
from app.core.settings import Settings

if TYPE_CHECKING:
    from aotlens.paths import PathExpansion, Residual


#: The cost of an expansion and the sum of all its paths: passes over the prompt, of whose operations, products of large
#: matrices, ten cost as much as one of others; and bytes for each position and output. Patterns are bounded by
#: `Inference.token_limit`.
_PASSES, _STREAMED, _BYTES_OF_OUTPUT = 8, 0.1, 8.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Expanded:
    """One prompt in one model."""

    key: str
    checkpoint: str
    text: str
    expansion: PathExpansion
    loaded: LoadedModel
    """The model that the expansion runs again, and its lock."""
    notes: tuple[str, ...]
    """Remarks on what is special about this model."""
    limit: int
    """The longest prompt, tokens."""

    @cached_property
    def residual(self) -> Residual:
        """Return the sum of paths − model over all positions and tokens."""
        return self.expansion.residual()


class Expansions:
    """Prompts expanded into paths."""

    def __init__(self, catalog: Catalog, inference: Inference, memory: Memory, settings: Settings) -> None:
        self._catalog, self._inference, self._settings = catalog, inference, settings
        self._expanded: Cache[str, Expanded] = memory.cache(grows=True)

    def of(self, checkpoint: str | None, text: str, *, length: int | None = None) -> Expanded:
        """Return a prompt's expansion. Raises RequestError for text that `Inference` refuses, and for what would take
        more operations or memory than one request may."""
        self._catalog.need_text(checkpoint)
        loaded, tokens = self._inference.tokens(checkpoint, text, length=length)
        assert checkpoint is not None
        key = hashlib.sha256(f"{loaded.key}:{tokens}".encode()).hexdigest()[:24]
        expanded = self._expanded.get(key, lambda: self._expand(key, checkpoint, text, loaded, tokens))
        return expanded if expanded.text == text and expanded.checkpoint == checkpoint else replace(expanded, text=text)

    def _expand(self, key: str, checkpoint: str, text: str, loaded: LoadedModel, tokens: Sequence[int]) -> Expanded:
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
        return Expanded(
            key=key,
            checkpoint=checkpoint,
            text=text,
            expansion=expansion,
            loaded=loaded,
            notes=notes_of(loaded),
            limit=self._inference.token_limit(loaded),
        )


def notes_of(loaded: LoadedModel) -> tuple[str, ...]:
    """Say what is special about a model's paths, in sentences."""
    from aotlens.models import PHIS

    cfg = loaded.model.cfg
    notes = []
    if loaded.model.sees_later_keys:
        notes.append("This model sees both sides: what it predicts at a token is that token, not the next one.")
    if not cfg.attn_only:
        notes.append(
            f"This model has MLPs (d_mlp = {cfg.d_mlp}). What each writes on this text is a source of its own, mlp_0 "
            "for layer 0, held as it is: what it read from tokens and heads is hidden in it."
        )
    if cfg.n_layers == 1:
        notes.append("This model has one layer: no path passes more than one head.")
    if not cfg.has_query_key:
        exact = (
            "the linear estimate is the forward pass"
            if not cfg.norm
            else "only the norms' scales make a forward pass differ from the linear estimate"
        )
        notes.append(f"Its attention patterns are fixed: they don't depend on the text, and {exact}.")
    elif not PHIS[cfg.phi].rows_sum_to_one:
        notes.append("Rows of its attention patterns don't sum to 1; paths carry them as they are.")
    return tuple(notes)
