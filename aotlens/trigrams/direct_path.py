"""The direct path W_E W_U: what a model predicts from the last token alone (*structures* §4);
`zero_layer` compares it with a corpus's bigrams.

Embedding and unembedding alone are the zero-layer transformer T = W_U W_E (there columns; here rows, W_E W_U). In a
model with layers it is the path that no head is on. Heads write bigrams too, by attending to the destination itself:
`heads` adds what they would write if they attended to nothing else,

    W_E W_U + Σ_h W_E W_V^h W_O^h W_U                [first, second], logits, each row less its mean

(for the thresholded softmax, times τ, which is all the attention that there is).

With a final norm, a token's row is centred and divided by its own root mean square, as if it were alone in the stream,
and gain and bias are folded in. What is the same for every first token, b_U, the norm's bias and the heads' own, is not
part of the path, but it belongs to the prediction (`zero_layer`). What positions write belongs to neither.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from aotlens.circuits import ov_circuit, top_entries, top_per_row
from aotlens.circuits.factored import FactoredMatrix
from aotlens.conventions import Head, HeadLike, Progress, as_heads
from aotlens.models import AttentionOnlyTransformer, folded_norm, require_ours, widened
from aotlens.models.phi import PHIS, apply_phi
from aotlens.models.traits import NOT_LINEAR
from aotlens.results import Result, data_frame
from aotlens.trigrams.find import Tokens, token_ids
from aotlens.trigrams.text import BigramSource, count_bigrams, token_strings

if TYPE_CHECKING:
    import pandas as pd

_ROWS = 1024
_PAIRS = 1 << 16


@dataclass(frozen=True, kw_only=True, eq=False)
class Bigrams(Result):
    """Entries `[first] → [second]` of the direct path, best first, beside a corpus."""

    first: Int64[np.ndarray, " rows"]
    second: Int64[np.ndarray, " rows"]
    first_token: tuple[str, ...]
    second_token: tuple[str, ...]
    logit: Float64[np.ndarray, " rows"]
    """Above the mean over second tokens, logits."""
    predicted: Float64[np.ndarray, " rows"]
    """P(second | first) if there were nothing but the path and the constant logits, as `zero_layer` has it."""
    count: Int64[np.ndarray, " rows"] | None
    """The count of second after first in the corpus; None without one."""
    probability: Float64[np.ndarray, " rows"] | None
    """P(second | first) in the corpus; NaN where first does not occur."""
    heads: tuple[Head, ...]
    """The heads whose OV circuits are added to the direct path."""
    relative: str

    @property
    def headline(self) -> str:
        if not len(self.first):
            return "no rows"
        return f"[{self.first_token[0]}] → [{self.second_token[0]}] first, {self.logit[0]:+.2f} logits"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a bigram."""
        columns: dict[str, Any] = {"first": self.first_token, "second": self.second_token, "first_id": self.first}
        columns |= {"second_id": self.second, "logit": self.logit, "predicted": self.predicted}
        if self.count is not None:
            columns |= {"count": self.count, "probability": self.probability}
        return data_frame(columns)


def direct_path(model: AttentionOnlyTransformer, heads: HeadLike | Iterable[HeadLike] = ()) -> FactoredMatrix:
    """Return the path as a factored `[first, second]` matrix, formula at the head of this module, logits.

    Raises `ValueError` for a model that does not read and write tokens, and for heads that read or are read through
    more than tokens and W_U: those after the first layer, and those of a model with norms.
    """
    require_ours(model, "direct_path", without=NOT_LINEAR)
    if (model.cfg.read_in, model.cfg.read_out) != ("tokens", "tokens"):
        raise ValueError(
            f"the direct path from tokens to tokens: this model reads {model.cfg.read_in} and writes "
            f"{model.cfg.read_out}."
        )
    norm, embedding = folded_norm(model, None), widened(model.W_E)
    left, right = norm.centre(embedding) / norm.scale(embedding), norm.into(widened(model.W_U))
    circuits = [ov_circuit(model, head) for head in _checked(model, heads)]
    left = torch.cat([left, *(_whole_attention(model) * circuit.A for circuit in circuits)], dim=1)
    right = torch.cat([right, *(circuit.B for circuit in circuits)], dim=0)
    return FactoredMatrix(left, right - right.mean(1, keepdim=True))


@torch.no_grad()
def bigrams(
    model: AttentionOnlyTransformer,
    k: int = 1000,
    *,
    per_token: bool = False,
    tokens: Tokens | None = None,
    heads: HeadLike | Iterable[HeadLike] = (),
    corpus: BigramSource | None = None,
    max_tokens: int | None = None,
    documents: Collection[str] | None = None,
) -> Bigrams:
    """Return the `k` largest entries of the direct path, exact; with `per_token` the k largest of every first token.

    `tokens` (ids, or strings of one token) takes these first tokens only, in this order, k rows each. `corpus` puts
    counts beside the entries: text, of which `documents` and `max_tokens` choose some, or bigrams that are counted
    (`count_bigrams`, `BigramModel`). `heads` are added as if they attended to the first token itself and to nothing
    else; which heads do, `aotlens.heads.motif_scores` says (current token).

    Time and memory: those of `top_entries` and `top_per_row`, and of reading the corpus. Raises `ValueError` for what
    `direct_path` and `count_bigrams` refuse, for an unknown token, and for k below 1 or larger than the vocabulary.
    """
    require_ours(model, "bigrams", without=NOT_LINEAR)
    whole, constant = direct_path(model, heads), constant_logits(model, heads)
    path = whole
    ids = None if tokens is None else np.array(token_ids(model, tokens, "tokens"), dtype=np.int64)
    if ids is not None:
        path = FactoredMatrix(path.A[torch.from_numpy(ids).to(path.A.device)], path.B)
    if per_token or ids is not None:
        lines = top_per_row(path, k)
        first = np.repeat(np.arange(len(lines.indices)) if ids is None else ids, k).astype(np.int64)
        second, logit = lines.indices.numpy().ravel(), lines.values.numpy().ravel()
    else:
        entries = top_entries(path, k)
        first, second, logit = (part.numpy() for part in (entries.rows, entries.columns, entries.values))
    count = probability = None
    if corpus is not None:
        counts = count_bigrams(model, corpus, max_tokens=max_tokens, documents=documents)
        count, totals = counts.of(first, second), counts.totals[first]
        probability = count / np.where(totals > 0, totals, np.nan)
    distinct, places = np.unique(first, return_inverse=True)
    log_p = logits_of(whole, constant, first, second) - log_normalisers(whole, constant, distinct)[places]

    return Bigrams(
        first=first,
        second=second,
        first_token=token_strings(model, first),
        second_token=token_strings(model, second),
        logit=logit,
        predicted=np.exp(log_p),
        count=count,
        probability=probability,
        heads=as_heads(heads, model.cfg, at_least=0),
        relative=relative_because(model),
    )


def constant_logits(
    model: AttentionOnlyTransformer, heads: HeadLike | Iterable[HeadLike] = ()
) -> Float[Tensor, " d_vocab"]:
    """Return the logits of the prediction that no token changes: the norm's bias through W_U, b_U, and of `heads` b_V
    through W_O, and b_O. Raises `ValueError` as `direct_path`."""
    W_U = widened(model.W_U)
    constant = widened(model.b_U) + folded_norm(model, None).bias @ W_U
    heads = _checked(model, heads)
    for head in heads:
        written = widened(model.of_head("b_V", head)) @ widened(model.of_head("W_O", head))
        constant += _whole_attention(model) * written @ W_U
    if heads:
        constant += widened(model.b_O[0]) @ W_U
    return constant


def log_normalisers(
    path: FactoredMatrix,
    constant: Float[Tensor, " d_vocab"],
    first: Int64[np.ndarray, " rows"] | None = None,
    *,
    progress: Progress | None = None,
) -> Float64[np.ndarray, " rows"]:
    """Return log Σ_o e^{path[t, o] + constant[o]} of the rows `first` (None: all), nats; `progress(rows, all)`."""
    rows = path.A if first is None else path.A[torch.from_numpy(first).to(path.A.device)]
    result = np.empty(len(rows))
    done = 0
    for part in rows.split(_ROWS):
        result[done : done + len(part)] = (part @ path.B + constant).logsumexp(1).cpu().double().numpy()
        done += len(part)
        if progress is not None:
            progress(done, len(rows))
    return result


def logits_of(
    path: FactoredMatrix,
    constant: Float[Tensor, " d_vocab"],
    first: Int64[np.ndarray, " rows"],
    second: Int64[np.ndarray, " rows"],
) -> Float64[np.ndarray, " rows"]:
    """Return path[first, second] + constant[second], pair by pair, logits."""
    values = np.empty(len(first))
    columns = path.B.T
    for start in range(0, len(first), _PAIRS):
        a, b = (torch.from_numpy(ids[start : start + _PAIRS]).to(path.A.device) for ids in (first, second))
        values[start : start + len(a)] = ((path.A[a] * columns[b]).sum(1) + constant[b]).cpu().double().numpy()
    return values


def relative_because(model: AttentionOnlyTransformer) -> str:
    """Return the reasons why the path's numbers are not the model's own on every input; empty where they are."""
    reasons = []
    if model.cfg.norm:
        reasons.append("the final norm divides by the whole stream's scale; here by the token's own.")
    if not model.cfg.attn_only:
        reasons.append("MLPs read the token too; what they add is left out.")
    return f"direct path: {' '.join(reasons)}" if reasons else ""


def _whole_attention(model: AttentionOnlyTransformer) -> float:
    """Return the factor of the only token's value in a head: φ of a pattern that is 1."""
    whole = torch.zeros(1, 1, 1, 1, dtype=torch.float64)  # [batch, head, query, key]
    return float(apply_phi(model.cfg, whole, None))


def _checked(model: AttentionOnlyTransformer, heads: HeadLike | Iterable[HeadLike]) -> tuple[Head, ...]:
    heads = as_heads(heads, model.cfg, at_least=0)
    if heads and model.cfg.norm:
        raise ValueError(
            "heads: with a final norm, the scale of the direct path and that of what a head writes differ, so they do "
            "not add up; leave heads out, or take a model without norms."
        )
    if heads and not PHIS[model.cfg.phi].normalises:
        raise ValueError(
            f"heads: with phi={model.cfg.phi!r} a head attends to one token by no fixed share; leave heads out."
        )
    later = [f"{layer}.{head}" for layer, head in heads if layer != 0]
    if later:
        raise ValueError(f"heads: expected heads of the first layer, which read tokens alone, got {', '.join(later)}.")
    return heads


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
        seen = np.flatnonzero(self.frequency > 0)
        part = self.kl[seen] * self.frequency[seen]
        seen, part = (column[np.argsort(-part, kind="stable")] for column in (seen, part))
        return data_frame(
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
    return ZeroLayer(
        token=token_strings(model, np.arange(n)),
        kl=np.where(counts.totals > 0, kl, np.nan),
        count=counts.totals,
        frequency=counts.totals / count.sum(),
        entropy=float(-(share * log_p).sum()),
        unigram_kl=float((share * (log_p - np.log(followers[b] / count.sum()))).sum()),
        heads=as_heads(heads, model.cfg, at_least=0),
        relative=relative_because(model),
    )
