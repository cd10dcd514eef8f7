"""From text to what every head does with it.

Every forward pass has its model to itself, and every result is kept in memory, so that moving between heads and views
of one prompt runs no model.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotlens.checkpoints import CheckpointError
from app.core.cache import Cache
from app.core.catalog import Catalog, LoadedModel
from app.core.errors import RequestError
from app.core.settings import Settings

if TYPE_CHECKING:
    from aotlens.evaluate import NextTokenPredictions
    from aotlens.heads import AttentionPatterns, MotifScores


@dataclass(frozen=True, kw_only=True, eq=False)
class PromptResult:
    """The patterns of one prompt in one model."""

    key: str
    """Names this result: same model, same weights, same tokens."""
    checkpoint: str
    patterns: AttentionPatterns


class Inference:
    """Prompts through models, remembered."""

    def __init__(self, catalog: Catalog, settings: Settings) -> None:
        self._catalog = catalog
        self._settings = settings
        self._results: Cache[str, PromptResult] = Cache(settings.cache_bytes, lambda kept: kept.patterns.n_bytes)
        self._motifs: Cache[str, MotifScores] = Cache(64)
        self._predictions: Cache[tuple[str, int], NextTokenPredictions] = Cache(4096)

    def analyse(self, checkpoint: str | None, text: str, *, length: int | None = None) -> PromptResult:
        """Patterns of all heads on `text`, the start token before it.

        `length` is the text's true length in characters where the browser held a text back for being too long.
        Raises RequestError, with counts and limits, for text that can't be read or is too long: nothing is cut.
        """
        loaded, tokens = self.tokens(checkpoint, text, length=length)
        assert checkpoint is not None
        key = hashlib.sha256(f"{loaded.key}:{tokens}".encode()).hexdigest()[:24]
        return self._results.get(key, lambda: self._run(key, checkpoint, loaded, tokens))

    def tokens(self, checkpoint: str | None, text: str, *, length: int | None = None) -> tuple[LoadedModel, list[int]]:
        """A model and its tokens for `text`, refused as `analyse` says where it can't be read or is too long."""
        self._check_length(length if length is not None else len(text))
        loaded = self._catalog.load(checkpoint)
        assert checkpoint is not None
        return loaded, self._tokenise(checkpoint, loaded, text)

    def n_tokens(self, checkpoint: str | None, text: str) -> int | None:
        """How many tokens a model makes of `text`, the start token included; None where it can't be read."""
        try:
            return len(self.tokens(checkpoint, text)[1])
        except (RequestError, CheckpointError):
            return None

    def predictions(self, checkpoint: str | None, text: str, position: int | None) -> NextTokenPredictions:
        """The likeliest tokens after `position` (None: the last); at it, for a model that sees both sides."""
        result = self.analyse(checkpoint, text)
        n_pos = result.patterns.n_pos
        where = n_pos - 1 if position is None else position
        if not 0 <= where < n_pos:
            raise RequestError(f"Position {where} isn't in this text of {n_pos} tokens; choose one of the tokens.")
        return self._predictions.get((result.key, where), lambda: self._predict(result, where))

    def motifs(self, checkpoint: str | None) -> MotifScores:
        """How much each head behaves like a named motif, on repeated random tokens; measured once per model."""
        loaded = self._catalog.load(checkpoint)
        return self._motifs.get(loaded.key, lambda: self._score(loaded))

    def token_limit(self, loaded: LoadedModel) -> int:
        """The longest prompt for a model: its context, the app's limit, and what patterns fit in memory."""
        cfg = loaded.model.cfg
        per_pair = 8 * cfg.n_layers * cfg.n_heads  # pattern and scores, float32
        return min(cfg.n_ctx, self._settings.max_tokens, math.isqrt(self._settings.max_result_bytes // per_pair))

    def _check_length(self, characters: int) -> None:
        most = self._settings.max_characters
        if characters > most:
            raise RequestError(
                f"This text has {characters:,} characters, and at most {most:,} are tokenised here. Nothing was cut "
                "and nothing was run: shorten the text."
            )

    def _tokenise(self, checkpoint: str, loaded: LoadedModel, text: str) -> list[int]:
        if loaded.model.tokenizer is None or loaded.model.cfg.read_in != "tokens":
            raise RequestError(f"The checkpoint {checkpoint} doesn't read text; choose one with a tokenizer.")
        try:
            tokens: list[int] = loaded.model.to_tokens(text)[0].tolist()
        except ValueError as error:
            raise RequestError(f"This text can't be tokenised: {error}.") from error
        limit = self.token_limit(loaded)
        if len(tokens) > limit:
            cfg = loaded.model.cfg
            why = "its context" if limit == cfg.n_ctx else "the limit of this app for a model of its size"
            raise RequestError(
                f"This text is {len(tokens):,} tokens, the start token included, and {checkpoint} takes at most "
                f"{limit:,} ({why}). Nothing was cut and nothing was run: shorten the text by at least "
                f"{len(tokens) - limit:,} tokens."
            )
        return tokens

    def _run(self, key: str, checkpoint: str, loaded: LoadedModel, tokens: Sequence[int]) -> PromptResult:
        import torch

        from aotlens.heads import attention_patterns

        with loaded.exclusive:
            patterns = attention_patterns(loaded.model, torch.tensor(tokens))
        return PromptResult(key=key, checkpoint=checkpoint, patterns=patterns)

    def _score(self, loaded: LoadedModel) -> MotifScores:
        from aotlens.heads import motif_scores

        with loaded.exclusive:
            return motif_scores(loaded.model, n_sequences=8)

    def _predict(self, result: PromptResult, position: int) -> NextTokenPredictions:
        import torch

        from aotlens.evaluate import masked_predictions, next_token_predictions

        loaded = self._catalog.load(result.checkpoint)
        predict = masked_predictions if loaded.model.sees_later_keys else next_token_predictions
        k = min(self._settings.n_predictions, loaded.model.cfg.d_vocab or 1)
        with loaded.exclusive:
            return predict(loaded.model, torch.from_numpy(result.patterns.tokens), position, k)
