"""The copying rate: how often a head, or several together, raise the token that they read above every other.

Of the OV circuit tokens × logits, `W_E W_V W_O W_U` with norms folded in, row t says what attending to token t adds to
each logit. A token counts as copied if its own logit is the row's maximum. An eigenvalue copying score (`spectrum`)
weighs how strongly tokens are copied; this rate counts them, and means something for any model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64, Int64

from aotlens.circuits.circuit import sum_of_circuits
from aotlens.circuits.qk_ov import ov_circuit
from aotlens.circuits.rows import diagonal_rank
from aotlens.circuits.spectrum import spectrum
from aotlens.conventions import Head, HeadLike, Progress, as_heads, head_name
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class CopyingRate(Result):
    """Shares of the vocabulary, 0 to 1. By chance they would be 1 and 5 in `n_tokens`."""

    heads: tuple[Head, ...]
    """(layer, head) of every head in the sum."""
    top1: float | int
    """Tokens whose own logit is the largest of their row."""
    top5: float | int
    """Tokens whose own logit is among the five largest of their row."""
    n_tokens: int
    ranks: Int64[np.ndarray, " token"]
    """The number of logits of a token's row before its own: 0 is the largest. Equal ones come in order of ids."""
    exact: bool
    """Whether the circuit's entries are terms of the model's own logits."""
    relative: str
    """The reasons if they are not. A row's order is exact all the same where its scale is the only thing missing."""

    @property
    def headline(self) -> str:
        return f"{self.top1:.1%} of tokens raise their own logit most, {self.top5:.1%} among five"


def copying_rate(model: AttentionOnlyTransformer, heads: HeadLike | Iterable[HeadLike]) -> CopyingRate:
    """Return the share of tokens t with argmax_u M[t, u] = t, for the OV circuit M `[d_vocab, d_vocab]` of a sum of
    heads.

    `copying_rate(model, "1.4")` is of one head, `copying_rate(model, ["1.4", (1, 6)])` of the sum of two, as if both
    attended to the same token. Two heads can copy together what neither copies alone. A head named twice counts once.

    What is left out scales whole rows (a token's own scale, the final norm's) and so leaves a row's order as it is, but
    a sum's heads of different layers read a token at different scales, of which only the token's own is known. In a
    model with MLPs (an imported GPT-2, say) more is left out, which can change the order of a row: what the MLPs before
    a head have made of the token that it reads, and what those after it make of what it writes. `relative` says so; the
    rate is then of the direct path alone, and a head that copies on text may have a low one.

    Exact, streamed: two float32 products [d_vocab, d_head · heads] × [d_head · heads, d_vocab]; memory: see
    `diagonal_rank`. A model that reads tokens and writes as many classes counts as one whose class i is token i, the
    usual case of models of symbols. Raises `ValueError` for a head that the model does not have, for no head, and where
    no output is the token that is read.
    """
    require_ours(model, "copying_rate", without=("norm_after", "clip_qkv"))
    cfg = model.cfg
    same_symbols = cfg.read_out == "tokens" or (cfg.read_out == "classes" and cfg.d_out == cfg.d_vocab)
    if cfg.read_in != "tokens" or not same_symbols:
        outputs = f"{cfg.d_out} {cfg.read_out}" if cfg.read_out == "classes" else cfg.read_out
        raise ValueError(
            f"copying_rate: expected a model from tokens to the same tokens, got one from {cfg.read_in} to {outputs}."
        )
    pairs = as_heads(heads, cfg)
    circuit = sum_of_circuits([ov_circuit(model, pair) for pair in pairs])
    ranks = diagonal_rank(circuit).numpy()
    return CopyingRate(
        heads=pairs,
        top1=float((ranks < 1).mean()),
        top5=float((ranks < 5).mean()),
        n_tokens=len(ranks),
        ranks=ranks,
        exact=circuit.exact,
        relative=circuit.relative,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class CopyingScores(Result):
    """The copying scores of all heads, for the very tokens that they attend to, by eigenvalues and by counting."""

    heads: tuple[Head, ...]
    n_tokens: int
    scores: Float64[np.ndarray, " head"]
    """Σ Re λ / Σ |λ| of the OV circuit tokens × logits, as `spectrum` has it; NaN where there is none."""
    by_construction: Bool[np.ndarray, " head"]
    """Whether the score is 1 whatever the weights."""
    top1: Float64[np.ndarray, " head"]
    """The share of tokens whose own logit is the largest of all that attending to them adds, as `copying_rate`."""
    top5: Float64[np.ndarray, " head"]

    @property
    def headline(self) -> str:
        best = int(self.top1.argmax())
        layer, head = self.heads[best]
        return f"{layer}.{head} copies most: {self.top1[best]:.1%} of {self.n_tokens:,} tokens promote themselves most"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a head: head, score, by_construction, top1, top5."""
        import pandas as pd

        columns = {"head": list(map(head_name, self.heads)), "score": self.scores}
        columns |= {name: getattr(self, name) for name in ("by_construction", "top1", "top5")}
        return pd.DataFrame(columns)


def copying_scores(
    model: AttentionOnlyTransformer, heads: Iterable[HeadLike] | None = None, *, progress: Progress | None = None
) -> CopyingScores:
    """Return the copying score and the copying rate of each of these heads, of all heads unless told, alone.

    `progress(done, total)` counts heads. Cost and errors are those of `copying_rate`, for each head.
    """
    require_ours(model, "copying_scores")
    all_heads = product(range(model.cfg.n_layers), range(model.cfg.n_heads))
    chosen = as_heads(list(all_heads if heads is None else heads), model.cfg)
    rates, spectra = [], []
    for done, head in enumerate(chosen):
        if progress is not None:
            progress(done, len(chosen))
        rates.append(copying_rate(model, head))
        spectra.append(spectrum(ov_circuit(model, head), 1, n_vectors=1))
    scores = [each.copying_score for each in spectra]
    return CopyingScores(
        heads=chosen,
        n_tokens=rates[0].n_tokens,
        scores=np.array([np.nan if score is None else score for score in scores], dtype=np.float64),
        by_construction=np.array([each.by_construction for each in spectra]),
        top1=np.array([each.top1 for each in rates]),
        top5=np.array([each.top5 for each in rates]),
    )
