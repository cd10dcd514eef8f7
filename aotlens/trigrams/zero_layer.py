"""`zero_layer`: the direct path's predictions held against a corpus's bigram table (*structures* §4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64

from aotlens.conventions import Head, HeadLike, Progress, as_heads
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.models.traits import NOT_LINEAR
from aotlens.results import Result
from aotlens.trigrams.corpus_bigrams import BigramSource, count_bigrams
from aotlens.trigrams.direct_path import constant_logits, direct_path, log_normalisers, logits_of, relative_because

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class ZeroLayer(Result):
    """The direct path's predictions against a corpus's bigram table, nats."""

    token: tuple[str, ...]
    """Every token's string; empty strings for a model without a tokenizer."""
    kl: Float64[np.ndarray, " d_vocab"]
    """KL(corpus P(· | token) ‖ direct path's prediction); NaN for a token that nothing follows in the corpus."""
    count: Float64[np.ndarray, " d_vocab"]
    """The number of times that anything follows the token in the corpus."""
    frequency: Float64[np.ndarray, " d_vocab"]
    """The token's share of the corpus's bigrams."""
    entropy: float | int
    """The entropy of the corpus's bigram table, frequency-weighted: what no bigram model gets below on this corpus."""
    unigram_kl: float | int
    """The KL, frequency-weighted, of a prediction of unigram frequencies whatever the token."""
    heads: tuple[Head, ...]
    """The heads whose OV circuits are added to the direct path."""
    relative: str

    @property
    def headline(self) -> str:
        return f"{self.mean_kl:.3f} nats from the corpus's bigrams (unigrams: {self.unigram_kl:.3f})"

    @property
    def mean_kl(self) -> float:
        """KL a token, weighted by frequency."""
        seen = self.frequency > 0
        return float((self.kl[seen] * self.frequency[seen]).sum())

    @property
    def cross_entropy(self) -> float:
        """The direct path's loss on the corpus's bigrams."""
        return self.entropy + self.mean_kl

    def to_frame(self) -> pd.DataFrame:
        """Return one row a token that something follows, by its part of the mean KL, largest first."""
        import pandas as pd

        seen = np.flatnonzero(self.frequency > 0)
        part = self.kl[seen] * self.frequency[seen]
        seen, part = (column[np.argsort(-part, kind="stable")] for column in (seen, part))
        return pd.DataFrame(
            {
                "token": [self.token[index] for index in seen],
                "token_id": seen,
                "count": self.count[seen].astype(np.int64),
                "frequency": self.frequency[seen],
                "kl": self.kl[seen],
                "part": part,
            }
        )


@torch.no_grad()
def zero_layer(
    model: AttentionOnlyTransformer,
    corpus: BigramSource,
    *,
    heads: HeadLike | Iterable[HeadLike] = (),
    max_tokens: int | None = None,
    documents: Collection[str] | None = None,
    progress: Progress | None = None,
) -> ZeroLayer:
    """Measure how far the direct path is from a corpus's bigram table, token by token (*structures* §4, Remark 21).

    The prediction after token a is softmax(W_E[a] W_U + b), b the norm's bias through W_U plus b_U; with `heads`, their
    OV circuits and biases are added, as if they attended to the token itself and to nothing else. P is the corpus's
    table as counted, without smoothing; for rare tokens KL therefore counts noise, which the frequency weights down.

    `corpus` is text, of which `documents` and `max_tokens` choose some, or bigrams that are counted (`count_bigrams`,
    `BigramModel`). Time: the path's product and an exp an entry. Memory: rows of it, and the pairs seen.
    `progress(tokens, all)`. Raises `ValueError` for what `direct_path` and `count_bigrams` refuse.
    """
    require_ours(model, "zero_layer", without=(*NOT_LINEAR, "score_cap"))
    path, bias = direct_path(model, heads), constant_logits(model, heads)
    counts = count_bigrams(model, corpus, max_tokens=max_tokens, documents=documents)
    n = len(path.A)
    a, b, count = counts.first, counts.second, counts.count
    log_q = logits_of(path, bias, a, b) - log_normalisers(path, bias, progress=progress)[a]
    log_p = np.log(count / counts.totals[a])
    share = count / count.sum()
    kl = np.bincount(a, count / counts.totals[a] * (log_p - log_q), minlength=n)
    followers = np.bincount(b, count, minlength=n)
    strings = ("",) * n if model.tokenizer is None else tuple(model.tokenizer.str_tokens(list(range(n))))
    return ZeroLayer(
        token=strings,
        kl=np.where(counts.totals > 0, kl, np.nan),
        count=counts.totals,
        frequency=counts.totals / count.sum(),
        entropy=float(-(share * log_p).sum()),
        unigram_kl=float((share * (log_p - np.log(followers[b] / count.sum()))).sum()),
        heads=as_heads(heads, model.cfg, at_least=0),
        relative=relative_because(model),
    )
