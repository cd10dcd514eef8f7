"""Inference: from text to what every head does with it.

Every forward pass has its model to itself, and every result is kept in memory, so that moving between heads and views
of one prompt runs no model.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aotlens.checkpoints import CheckpointError
from app.core.cache import Cache, Memory
from app.core.catalog import Catalog, LoadedModel
from app.core.errors import RequestError
from app.core.examples import FIRST
from app.core.limits import deadline, require_at_most
from app.core.settings import Settings
from app.core.switches import How, Switches

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from aotlens.heads import AttentionPatterns, BlockMaxima, HeadLabels, LongPatterns, MotifScores
    from aotlens.heads.patterns import ClearestHead
    from aotlens.models import AttentionOnlyTransformer
    from app.core.corpora import Text

#: The number and the length of the random token sequences on which motifs are scored, as `motif_scores` has them; and
#: its operations for each pair of positions of each head.
_RANDOM_SEQUENCES, _RANDOM_TOKENS, _PAIR_COST = 16, 101, 50.0
#: Tokens of a vocabulary up to which it may be one of symbols.
_MOST_SYMBOLS = 1_000

#: (layer, head) of some heads.
Heads = tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class PromptResult:
    """The result of one prompt in one model, whole or with some of its heads switched off."""

    key: str
    """The name of this result: same model, same weights, same tokens, same heads."""
    checkpoint: str
    patterns: AttentionPatterns | LongPatterns
    logits: Tensor | None
    """`[pos, d_vocab]`, of the same run; None of a long prompt, whose patterns are computed row by row."""
    off: Heads = ()
    """The heads that were switched off in it."""
    how: How = "zero"
    corpus: str | None = None
    """The corpus whose windows stood in for them; None where none did."""


class Inference:
    """Prompts through models, remembered."""

    def __init__(self, catalog: Catalog, settings: Settings, switches: Switches, memory: Memory) -> None:
        self._catalog = catalog
        self._settings = settings
        self._switches = switches
        self._results: Cache[str, PromptResult] = memory.cache()
        self._motifs: Cache[str, MotifScores] = memory.cache(64)
        self._losses: Cache[str, np.ndarray] = memory.cache(1024)
        self._maxima: Cache[tuple[str, str], BlockMaxima] = memory.cache()

    def analyse(
        self,
        checkpoint: str | None,
        text: str,
        *,
        off: Heads = (),
        how: How = "zero",
        corpus: str | None = None,
        length: int | None = None,
        long: bool = False,
    ) -> PromptResult:
        """Return patterns of all heads on `text`, the start token before it, and the logits; of the full model, or with
        the heads `off` switched off: `how` says what takes their place, and `corpus` from which text it is taken.

        `length` is the text's true length in characters where the browser held a text back for being too long. With
        `long`, a text beyond `token_limit` has `LongPatterns`, up to the limit of those.
        Raises RequestError, with counts and limits, for text that can't be read or is too long: nothing is cut; for
        heads that the model doesn't have, and where a way to switch off needs a corpus.
        """
        loaded, tokens = self.tokens(checkpoint, text, length=length, long=long)
        assert checkpoint is not None
        whole = self.token_limit(loaded)
        is_long = len(tokens) > whole
        if is_long and off and how != "zero":
            raise RequestError(f"In texts of more than {whole} tokens heads are ablated by zero only. Choose zero.")
        off = tuple(sorted(set(off)))
        self._check_heads(checkpoint, loaded, off)
        read = self._switches.text(checkpoint, how, corpus) if off else None
        ways = f":{off}:{how}:{read and read.key}" if off else ""
        key = hashlib.sha256(f"{loaded.key}:{tokens}{ways}".encode()).hexdigest()[:24]

        def run() -> PromptResult:
            with self.switched(loaded, off, how, read, len(tokens)):
                patterns, logits = self._run(loaded, tokens, is_long)
            return PromptResult(
                key=key, checkpoint=checkpoint, patterns=patterns, logits=logits, off=off,
                how=how if off else "zero", corpus=corpus if read else None,
            )  # fmt: skip

        return self._results.get(key, run)

    @contextmanager
    def switched(
        self, loaded: LoadedModel, off: Heads, how: How, read: Text | None, length: int
    ) -> Iterator[AttentionOnlyTransformer]:
        """Yield the model with heads switched off, for the one thread that is inside."""
        with loaded.exclusive:
            if not off:
                yield loaded.model
                return
            with self._switches.of(loaded, how, read, length).off(off):
                yield loaded.model

    def maxima(self, result: PromptResult, view: str) -> BlockMaxima:
        """Return the largest entries of blocks of all heads on a long prompt. Raises RequestError after
        `request_seconds`."""
        from aotlens.widget import grid_block

        def compute() -> BlockMaxima:
            patterns, progress = result.patterns, deadline(self._settings.request_seconds)
            block = grid_block(patterns.n_layers, patterns.n_heads, patterns.n_pos)
            return patterns.maxima(block, view, progress=progress)

        return self._maxima.get((result.key, view), compute)

    def clearest(self, result: PromptResult) -> ClearestHead | None:
        """Return the head whose behaviour on the prompt is clearest; None where no head shows a motif, and of long
        ones."""
        from aotlens.heads.patterns import clearest_head

        if result.logits is None:
            return None
        return clearest_head(result.patterns)

    def losses(self, result: PromptResult) -> np.ndarray:
        """Return the loss of each token of a prompt in the run that `result` is of, in nats: float32 `[pos]`, NaN for
        none.

        A model that sees both sides is asked for each token with a mask in its place, so this takes a while. Raises
        RequestError where such a model has no mask token.
        """
        return self._losses.get(result.key, lambda: self._measure(result))

    def tokens(
        self, checkpoint: str | None, text: str, *, length: int | None = None, long: bool = False
    ) -> tuple[LoadedModel, list[int]]:
        """Return a model and its tokens for `text`, refused as `analyse` says where it can't be read or is too long."""
        self._check_length(length if length is not None else len(text))
        loaded = self._catalog.load(checkpoint)
        assert checkpoint is not None
        return loaded, self._tokenise(checkpoint, loaded, text, long)

    def n_tokens(self, checkpoint: str | None, text: str) -> int | None:
        """Count the tokens that a model makes of `text`, the start token included; None where it can't be read."""
        try:
            return len(self.tokens(checkpoint, text)[1])
        except (RequestError, CheckpointError):
            return None

    def opening(self, checkpoint: str | None, text: str | None) -> str:
        """Return the text that a page opens on: its address's, and for None the first example, of which a model with a
        short context takes the words that fit, and a model that reads no words some of its own tokens, twice."""
        if text is not None:
            return text
        if (own := self._own_tokens(checkpoint)) is not None:
            return own
        n_ctx = self._catalog.config(checkpoint).get("n_ctx") if checkpoint else None
        if not n_ctx or n_ctx > len(FIRST):  # a token has a character or more, and a start token is before them
            return FIRST
        words = FIRST.split(" ")
        fitting = (" ".join(words[:n]) for n in range(len(words), 0, -1))
        return next((each for each in fitting if self.n_tokens(checkpoint, each) is not None), FIRST)

    def _own_tokens(self, checkpoint: str | None) -> str | None:
        """Some names of a model's tokens, in one order twice, where it reads symbols or ids; else None."""
        try:
            info = self._catalog.info(checkpoint)
            reads_words = info.tokenizer_sha256 is not None and info.model.get("d_vocab", 0) > _MOST_SYMBOLS
            loaded = None if reads_words or info.problem else self._catalog.load(checkpoint)
        except (RequestError, CheckpointError):
            return None  # which the page says where it runs the text
        from aotlens.data import SymbolTokenizer, repeated_random_tokens

        if loaded is None or not isinstance(tokenizer := loaded.model.tokenizer, SymbolTokenizer):
            return None
        n_each, start = max(1, min(12, (self.token_limit(loaded) - 1) // 2)), tokenizer.eot_id
        row = repeated_random_tokens(tokenizer.d_vocab, 1, n_each, 0, eot_id=start)[0].tolist()
        return tokenizer.decode(row if start is None else row[1:])

    def motifs(self, checkpoint: str | None) -> MotifScores:
        """Measure how much each head behaves like a named motif, on repeated random tokens; once per model."""
        loaded = self._catalog.load(checkpoint)
        return self._motifs.get(loaded.key, lambda: self._score(loaded))

    def labels(self, checkpoint: str | None) -> HeadLabels:
        """Return labels of what each head does, in a word: from the stored atlas, where there is one of these weights,
        as the Atlas page says it; else from `motifs`."""
        from aotlens.heads import head_labels
        from aotlens.results import find_stored

        try:
            record = find_stored("atlas", self._catalog.info(checkpoint))
        except ValueError:  # it cannot be read: the Atlas page says why
            record = None
        return head_labels(self.motifs(checkpoint)) if record is None else record.atlas.labels

    def token_limit(self, loaded: LoadedModel, *, long: bool = False) -> int:
        """Return the longest prompt for a model: its context, the app's limit, and what patterns fit in memory; with
        `long`, where no pattern is kept, what queries and keys do."""
        cfg, settings = loaded.model.cfg, self._settings
        n_heads = cfg.n_layers * cfg.n_heads
        whole = min(cfg.n_ctx, settings.max_tokens, math.isqrt(settings.max_result_bytes // (8 * n_heads)))
        if not long or cfg.attn_mask is not None:
            return whole  # 8 bytes: pattern and scores, float32
        from aotlens.models.attention import uses_sdpa

        fitting = min(cfg.n_ctx, settings.max_long_tokens, settings.max_result_bytes // (8 * n_heads * cfg.d_head))
        if not uses_sdpa(cfg) or cfg.position_kind.biases:  # a pass makes scores, biases and patterns of a whole layer
            fitting = min(fitting, math.isqrt(settings.max_held_bytes // (12 * cfg.n_heads)))
        return max(whole, fitting)

    def _check_length(self, characters: int) -> None:
        most = self._settings.max_characters
        if characters > most:
            raise RequestError(
                f"This text has {characters:,} characters, and at most {most:,} are tokenised here. Nothing was cut "
                "and nothing was run: shorten the text."
            )

    def _tokenise(self, checkpoint: str, loaded: LoadedModel, text: str, long: bool) -> list[int]:
        self._catalog.need_text(checkpoint)
        try:
            tokens: list[int] = loaded.model.to_tokens(text)[0].tolist()
        except ValueError as error:
            raise RequestError(f"This text can't be tokenised: {error}.") from error
        limit = self.token_limit(loaded, long=long)
        if len(tokens) > limit:
            cfg = loaded.model.cfg
            why = "its context" if limit == cfg.n_ctx else "the limit of this app for a model of its size"
            if len(tokens) <= (most := self.token_limit(loaded, long=True)):
                why = f"the limit where all patterns are held at once; the maps of Heads take {most:,}"
            raise RequestError(
                f"This text is {len(tokens):,} tokens, the start token included, and {checkpoint} takes at most "
                f"{limit:,} ({why}). Nothing was cut and nothing was run: shorten the text by at least "
                f"{len(tokens) - limit:,} tokens."
            )
        return tokens

    @staticmethod
    def _check_heads(checkpoint: str, loaded: LoadedModel, heads: Heads) -> None:
        cfg = loaded.model.cfg
        for layer, head in heads:
            if not (0 <= layer < cfg.n_layers and 0 <= head < cfg.n_heads):
                raise RequestError(
                    f"{checkpoint} has no head {layer}.{head} to switch off: its layers are 0 to {cfg.n_layers - 1}, "
                    f"its heads 0 to {cfg.n_heads - 1}."
                )

    @staticmethod
    def _run(
        loaded: LoadedModel, tokens: Sequence[int], is_long: bool
    ) -> tuple[AttentionPatterns | LongPatterns, Tensor | None]:
        import torch

        from aotlens.heads import long_patterns
        from aotlens.heads.patterns import patterns_and_logits

        if is_long:
            return long_patterns(loaded.model, torch.tensor(tokens)), None
        patterns, logits = patterns_and_logits(loaded.model, torch.tensor(tokens))
        return patterns, logits.cpu()

    def _measure(self, result: PromptResult) -> np.ndarray:
        from aotlens.evaluate import token_losses

        loaded, tokens = self._catalog.load(result.checkpoint), self._tokens(result)
        if not loaded.model.sees_later_keys:
            return token_losses(loaded.model, tokens, logits=result.logits)
        read = self._switches.text(result.checkpoint, result.how, result.corpus) if result.off else None
        try:
            with self.switched(loaded, result.off, result.how, read, len(tokens)) as model:
                return token_losses(model, tokens)
        except ValueError as error:
            raise RequestError(f"{result.checkpoint} has no loss of a token: {error}") from error

    @staticmethod
    def _tokens(result: PromptResult) -> Tensor:
        import torch

        return torch.from_numpy(result.patterns.tokens)

    def _score(self, loaded: LoadedModel) -> MotifScores:
        from aotlens.heads import motif_scores
        from aotlens.views.view import pass_cost

        cfg, settings = loaded.model.cfg, self._settings
        n_pos = min(cfg.n_ctx, _RANDOM_TOKENS)
        pairs = cfg.n_layers * cfg.n_heads * n_pos**2
        of_sequence = pass_cost(cfg.to_dict(), n_pos) + _PAIR_COST * pairs
        require_at_most(_RANDOM_SEQUENCES * of_sequence, settings.max_operations, "operations")
        with loaded.exclusive:
            return motif_scores(
                loaded.model, n_sequences=_RANDOM_SEQUENCES, batch_size=8 if pairs < 10**7 else 1,
                progress=deadline(settings.request_seconds),
            )  # fmt: skip
