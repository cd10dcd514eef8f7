"""The direct path W_E W_U: what a model predicts from the last token alone (*structures* §4).

`bigrams` lists its largest entries; `zero_layer` holds the whole of it against a corpus's bigrams.

Embedding and unembedding alone are the zero-layer transformer T = W_U W_E (there columns; here rows, W_E W_U). In a
model with layers it is the path that no head is on, and heads write some of the bigrams too, by attending to the
destination itself. With a final norm, a token's row is centred and divided by its own root mean square, as if it were
alone in the stream, and gain and bias are folded in; b_U, and what positions write, are not part of W_E W_U, but b_U
and the norm's bias belong to the prediction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor
from transformer_lens import FactoredMatrix

from aotlens.circuits import top_entries, top_per_row
from aotlens.circuits.sides import normalised_tokens, reader_of_logits
from aotlens.data import TokenFile
from aotlens.evaluate import BigramModel
from aotlens.models import AttentionOnlyTransformer

if TYPE_CHECKING:
    import pandas as pd

_ROWS = 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class Bigrams:
    """Entries `[first] → [second]` of the direct path, best first, beside a corpus."""

    first: Int64[np.ndarray, " rows"]
    second: Int64[np.ndarray, " rows"]
    first_token: tuple[str, ...]
    second_token: tuple[str, ...]
    logit: Float64[np.ndarray, " rows"]
    """Above the mean over second tokens, logits."""
    count: Int64[np.ndarray, " rows"] | None
    """How often second follows first in the corpus; None without one."""
    probability: Float64[np.ndarray, " rows"] | None
    """P(second | first) in the corpus; NaN where first does not occur."""
    relative: str

    def to_frame(self) -> pd.DataFrame:
        """One row a bigram."""
        import pandas as pd

        columns: dict[str, Any] = {"first": self.first_token, "second": self.second_token, "first_id": self.first}
        columns |= {"second_id": self.second, "logit": self.logit}
        if self.count is not None:
            columns |= {"count": self.count, "probability": self.probability}
        return pd.DataFrame(columns)


def direct_path(model: AttentionOnlyTransformer) -> FactoredMatrix:
    """W_E W_U as a factored `[first, second]` matrix, each row less its mean, logits.

    Raises `ValueError` for a model that does not read and write tokens.
    """
    if (model.cfg.read_in, model.cfg.read_out) != ("tokens", "tokens"):
        raise ValueError(
            f"the direct path from tokens to tokens: this model reads {model.cfg.read_in} and writes "
            f"{model.cfg.read_out}."
        )
    unembed = reader_of_logits(model).detach()
    return FactoredMatrix(normalised_tokens(model).detach(), unembed - unembed.mean(1, keepdim=True))


@torch.no_grad()
def bigrams(
    model: AttentionOnlyTransformer,
    k: int = 1000,
    *,
    per_token: bool = False,
    corpus: TokenFile | BigramModel | None = None,
) -> Bigrams:
    """The `k` largest entries of the direct path, or with `per_token` the k largest of every row, exact.

    `corpus` puts counts beside them. Time and memory: those of `top_entries` and `top_per_row`.
    """
    path = direct_path(model)
    if per_token:
        lines = top_per_row(path, k)
        first = np.repeat(np.arange(len(lines.indices), dtype=np.int64), k)
        second, logit = lines.indices.numpy().ravel(), lines.values.numpy().ravel()
    else:
        entries = top_entries(path, k)
        first, second, logit = (part.numpy() for part in (entries.rows, entries.columns, entries.values))
    counts = None if corpus is None else _counted(model, corpus)

    def strings(ids: np.ndarray) -> tuple[str, ...]:
        return ("",) * len(ids) if model.tokenizer is None else tuple(model.tokenizer.str_tokens(ids.tolist()))

    return Bigrams(
        first=first,
        second=second,
        first_token=strings(first),
        second_token=strings(second),
        logit=logit,
        count=None if counts is None else counts.of(first, second),
        probability=None if counts is None else counts.of(first, second) / counts.totals_or_nan[first],
        relative=_relative(model),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ZeroLayer:
    """The direct path's predictions against a corpus's bigram table, nats."""

    kl: Float64[np.ndarray, " d_vocab"]
    """KL(corpus P(· | token) ‖ direct path's prediction); NaN for a token that nothing follows in the corpus."""
    frequency: Float64[np.ndarray, " d_vocab"]
    """The token's share of the corpus's bigrams."""
    entropy: float | int
    """Of the corpus's bigram table, frequency-weighted: what no bigram model gets below on this corpus."""
    unigram_kl: float | int
    """The same KL, frequency-weighted, for a prediction of unigram frequencies whatever the token."""
    relative: str

    @property
    def mean_kl(self) -> float:
        """KL a token, weighted by frequency."""
        seen = self.frequency > 0
        return float((self.kl[seen] * self.frequency[seen]).sum())

    @property
    def cross_entropy(self) -> float:
        """The direct path's loss on the corpus's bigrams."""
        return self.entropy + self.mean_kl


@torch.no_grad()
def zero_layer(
    model: AttentionOnlyTransformer,
    corpus: TokenFile | BigramModel,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> ZeroLayer:
    """How far the direct path is from a corpus's bigram table, token by token (*structures* §4, Remark 21).

    The prediction after token a is softmax(W_E[a] W_U + b), b the norm's bias through W_U plus b_U. P is the corpus's
    table as counted, without smoothing; for rare tokens KL therefore counts noise, which the frequency weights down.

    `corpus` is a token file, or a `BigramModel` fitted to one. Time: the direct path's product and an exp an entry.
    Memory: rows of it, and the pairs seen. `progress(tokens, all)`.
    """
    counts = _counted(model, corpus)
    path, bias = direct_path(model), _bias(model)
    n = len(path.A)
    log_normaliser = np.empty(n)
    for start in range(0, n, _ROWS):
        logits = path.A[start : start + _ROWS] @ path.B + bias
        log_normaliser[start : start + len(logits)] = logits.logsumexp(1).cpu().double().numpy()
        if progress is not None:
            progress(min(start + _ROWS, n), n)
    a, b, count = counts.first, counts.second, counts.count
    logit = np.empty(len(a))
    for start in range(0, len(a), 1 << 16):
        rows = torch.from_numpy(a[start : start + (1 << 16)]).to(path.A.device)
        columns = torch.from_numpy(b[start : start + (1 << 16)]).to(path.A.device)
        picked = (path.A[rows] * path.B.T[columns]).sum(1) + bias[columns]
        logit[start : start + len(rows)] = picked.cpu().double().numpy()
    log_p = np.log(count / counts.totals[a])
    share = count / count.sum()
    kl = np.bincount(a, count / counts.totals[a] * (log_p - (logit - log_normaliser[a])), minlength=n)
    followers = np.bincount(b, count, minlength=n)
    return ZeroLayer(
        kl=np.where(counts.totals > 0, kl, np.nan),
        frequency=counts.totals / count.sum(),
        entropy=float(-(share * log_p).sum()),
        unigram_kl=float((share * (log_p - np.log(followers[b] / count.sum()))).sum()),
        relative=_relative(model),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pairs:
    """Every pair seen, sorted by first, then second."""

    first: np.ndarray
    second: np.ndarray
    count: np.ndarray
    totals: np.ndarray  # [d_vocab]: how often something follows the token
    keys: np.ndarray

    def of(self, first: np.ndarray, second: np.ndarray) -> Int64[np.ndarray, " n"]:
        wanted = first * len(self.totals) + second
        at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[at] == wanted, self.count[at], 0)

    @property
    def totals_or_nan(self) -> np.ndarray:
        return np.where(self.totals > 0, self.totals, np.nan)


def _counted(model: AttentionOnlyTransformer, corpus: TokenFile | BigramModel) -> _Pairs:
    d_vocab = model.cfg.d_vocab or 0
    if corpus.d_vocab != d_vocab:
        raise ValueError(f"corpus: expected a vocabulary of {d_vocab} tokens, got {corpus.d_vocab}.")
    if isinstance(corpus, TokenFile):
        corpus = BigramModel.fit(np.asarray(corpus.tokens), d_vocab)
    keys, count = corpus.pair_keys, corpus.pair_counts
    first, second = keys // d_vocab, keys % d_vocab
    totals = np.bincount(first, count, minlength=d_vocab)
    return _Pairs(first=first, second=second, count=count, totals=totals, keys=keys)


def _bias(model: AttentionOnlyTransformer) -> Float[Tensor, " d_vocab"]:
    """The constant part of the logits: the final norm's bias through W_U, and b_U."""
    if not model.cfg.norm:
        return model.b_U.detach()
    norm: Any = model.ln_final
    return model.b_U.detach() + norm.b.detach() @ model.W_U.detach()


def _relative(model: AttentionOnlyTransformer) -> str:
    if not model.cfg.norm:
        return ""
    return "direct path: the final norm divides by the whole stream's scale; here by the token's own."
