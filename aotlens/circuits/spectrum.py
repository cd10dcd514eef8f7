"""The copying of a circuit, and its strongest actions: eigenvalues and singular pairs through its small side.

For M = A B with A `[rows, inner]` and B `[inner, columns]`, the eigenvalues of M other than 0 are those of B A
`[inner, inner]`; with A = Q R and Bᵀ = P S, the singular vectors of M are those of R Sᵀ, turned by Q and P. Both in
float64 on the CPU, without ever forming M.

Where rows and columns are the same things (a tokens × logits OV circuit), Elhage et al. (2021, "Detecting copying
heads") score how much the circuit raises what it reads: Σ λ / Σ |λ|, which is 1 if all eigenvalues λ are positive and
−1 if all are negative. Complex eigenvalues of a real matrix come in conjugate pairs, so Σ Re λ / Σ |λ| is that number.

**Copying rate.** Of the OV circuit tokens × logits, `W_E W_V W_O W_U` with norms folded in, row t says what attending
to token t adds to each logit. A token counts as copied if its own logit is the row's maximum. An eigenvalue copying
score (`spectrum`) weighs how strongly tokens are copied; this rate counts them, and means something for any model.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Complex128, Float64, Int64
from torch import Tensor

from aotlens.circuits.circuit import Circuit, Lines, sum_of_circuits
from aotlens.circuits.factored import FactoredMatrix
from aotlens.circuits.qk_ov import ov_circuit
from aotlens.circuits.rows import diagonal_rank
from aotlens.conventions import Head, HeadLike, Progress, as_heads, head_name, minus, require_whole
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.models.weights import double
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class Ends(Result):
    """The k rows (or columns) at both ends of every singular vector: the highest entries, and the lowest."""

    highest: Int64[np.ndarray, "vector k"]
    highest_values: Float64[np.ndarray, "vector k"]
    """The values of the highest entries, falling."""
    lowest: Int64[np.ndarray, "vector k"]
    lowest_values: Float64[np.ndarray, "vector k"]
    """The values of the lowest entries, rising."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Spectrum(Result):
    """Eigenvalues, copying score and singular pairs of one circuit."""

    eigenvalues: Complex128[np.ndarray, " n"] | None
    """The largest in size first, n = min(inner, rows); the others are 0. None unless rows are what columns are."""
    copying_score: float | int | None
    """Σ Re λ / Σ |λ|, −1 to 1; None where there are no eigenvalues, or none but 0."""
    by_construction: bool
    """The score is 1 whatever the weights, and says nothing about what this head has learned."""
    why: str
    """The reason why the score is 1 by construction, or why there is none; empty otherwise."""
    singular_values: Float64[np.ndarray, " rank"]
    """All min(rows, inner, columns) of them, falling, in the circuit's unit."""
    left_vectors: Float64[np.ndarray, "row vector"]
    """The first few left singular vectors, unit columns. Of a pair's two signs the one that makes the left vector's
    largest entry positive."""
    right_vectors: Float64[np.ndarray, "column vector"]
    left: Ends
    """Row ids at both ends of the left vectors. The highest on the left push the highest on the right up and the lowest
    down; the lowest on the left do the opposite."""
    right: Ends
    """Column ids at both ends of the right vectors."""
    kind: str = ""
    """`qk` or `ov`; empty for a matrix that is no circuit."""
    unit: str = ""
    rows: Lines | None = None
    """The rows at the ends of the left vectors, by name; None for a matrix that is no circuit."""
    columns: Lines | None = None

    @property
    def headline(self) -> str:
        score = "no eigenvalues" if self.copying_score is None else f"copying score {self.copying_score:.3f}"
        return f"{score}, largest singular value {self.singular_values.max(initial=0.0):.3g}"

    def sentences(self) -> str:
        """Return the number of eigenvalues, the copying score, and what it means."""
        n, size = len(self.singular_values), self.left_vectors.shape[0]
        sentence = f"{n} eigenvalues; the other {size - n:,} are 0. "
        if self.copying_score is None:
            return sentence + self.why
        name = "Copying score" if self.kind == "ov" else "Balance of signs"
        score = f"{name} Σ Re λ / Σ |λ| = {minus(self.copying_score, '.3f')}"
        if self.by_construction:
            return f"{sentence}{score}. This is 1 by construction and says nothing about what was learned: {self.why}"
        return f"{sentence}{score} (1: all positive, 0: they cancel, −1: all negative)."

    def to_frame(self) -> pd.DataFrame:
        """Return one row per entry at an end: vector, singular_value, side, end, rank, id, label (of a circuit),
        value."""
        import pandas as pd

        frames = []
        for side, ends, named in (("left", self.left, self.rows), ("right", self.right, self.columns)):
            labels = {} if named is None else dict(zip(named.places.tolist(), named.labels, strict=True))
            for end, ids, values in (
                ("highest", ends.highest, ends.highest_values),
                ("lowest", ends.lowest, ends.lowest_values),
            ):
                vector, rank = np.indices(ids.shape).reshape(2, -1)
                columns = {
                    "vector": vector,
                    "singular_value": self.singular_values[vector],
                    "side": side,
                    "end": end,
                    "rank": rank,
                    "id": ids.ravel(),
                }
                if named is not None:
                    columns["label"] = [labels[place] for place in ids.ravel().tolist()]
                frames.append(pd.DataFrame({**columns, "value": values.ravel()}))
        frame = pd.concat(frames, ignore_index=True)
        return frame.sort_values(["vector", "side", "end", "rank"], kind="stable", ignore_index=True)

    def eigenvalue_frame(self) -> pd.DataFrame:
        """Return one row per eigenvalue, the largest first: real, imaginary. Raises `ValueError` if there is none."""
        if self.eigenvalues is None:
            raise ValueError(f"This circuit has no eigenvalues: {self.why}")
        return data_frame({"real": self.eigenvalues.real, "imaginary": self.eigenvalues.imag})


@torch.no_grad()
def spectrum(circuit: FactoredMatrix, k: int = 10, *, n_vectors: int = 10) -> Spectrum:
    """Return eigenvalues, copying score, singular values, and the first `n_vectors` singular pairs with their top `k`
    ids.

    Definitions at the head of this module. Eigenvalues exist where the matrix is square and, for a `Circuit`, its rows
    are what its columns are: tokens × tokens, tokens × logits, positions × positions, residual × residual; not
    positions × tokens, whatever their number. `k` and `n_vectors` stop at what there is.

    The score is 1 by construction, and `by_construction` says so, where the model's design makes every circuit of that
    kind similar to a positive semidefinite matrix: OV of a tied MSSA head in the residual basis (unless a gain is
    negative), or between tokens and logits with tied embeddings and no norm; and the QK circuit of an MSSA head between
    equal sides. Nowhere else: between the tokens and logits of a model with norms it is measured.

    Time: O((rows + columns) · inner²). Memory: three times the factors, in float64.

    Raises `ValueError` for a matrix with leading dimensions, without entries or with entries that are not finite, and
    for k or n_vectors below 1.
    """
    require_whole("k", k, 1)
    require_whole("n_vectors", n_vectors, 1)
    A, B = _factors(circuit)
    eigenvalues, score, why = _eigenvalues(circuit, A, B)
    because = getattr(circuit, "psd_because", "") if score is not None else ""
    U, S, V = FactoredMatrix(A, B).svd()
    n_vectors = min(n_vectors, len(S))
    U, V = U[:, :n_vectors], V[:, :n_vectors]
    largest = U.abs().argmax(0)
    sign = torch.where(U[largest, torch.arange(n_vectors)] < 0, -1.0, 1.0).double()
    left, right = (U * sign).numpy(), (V * sign).numpy()
    left_ends, right_ends = _ends(left, k), _ends(right, k)
    named: dict[str, Any] = {}
    if isinstance(circuit, Circuit):
        named = {"kind": circuit.kind, "unit": circuit.quantity, "rows": circuit.lines("left", _places(left_ends)),
                 "columns": circuit.lines("right", _places(right_ends))}  # fmt: skip
    return Spectrum(
        eigenvalues=eigenvalues,
        copying_score=score,
        by_construction=bool(because),
        why=because or why,
        singular_values=S.numpy(),
        left_vectors=left,
        right_vectors=right,
        left=left_ends,
        right=right_ends,
        **named,
    )


def _factors(circuit: FactoredMatrix) -> tuple[Tensor, Tensor]:
    if circuit.ndim != 2 or 0 in circuit.shape or circuit.mdim == 0:
        raise ValueError(f"spectrum: expected one matrix [rows, columns] with entries, got {list(circuit.shape)}.")
    A, B = (double(factor) for factor in (circuit.A, circuit.B))
    if not (A.isfinite().all() and B.isfinite().all()):
        raise ValueError("spectrum: expected finite entries, got NaN or infinity; was the training stable?")
    return A, B


def _eigenvalues(circuit: FactoredMatrix, A: Tensor, B: Tensor) -> tuple[np.ndarray | None, float | None, str]:
    """Eigenvalues, score, and why one of them is None."""
    rows, columns = A.shape[0], B.shape[1]
    sides = [getattr(circuit, name, None) for name in ("left", "right")]
    kinds = [getattr(side, "index", None) for side in sides]
    if kinds[0] != kinds[1] or getattr(sides[0], "ids", None) != getattr(sides[1], "ids", None):
        return None, None, f"rows are {sides[0]}, columns are {sides[1]}: no eigenvalues between different things."
    if rows != columns:
        return None, None, f"{rows} rows and {columns} columns: only a square matrix has eigenvalues."
    values = FactoredMatrix(A, B).eigenvalues.numpy()
    values = values[np.lexsort((-values.imag, -values.real, -np.abs(values)))]
    size = np.abs(values).sum()
    # What rounding leaves of a product of factors that cancel is no score.
    rounding = torch.finfo(circuit.A.dtype).eps * (A.norm() * B.norm()).item()
    if size <= rounding:
        return values, None, "every eigenvalue is 0 (up to rounding): nothing is copied or suppressed."
    return values, float(values.real.sum() / size), ""


def _places(ends: Ends) -> list[int]:
    """The distinct rows (or columns) at the ends, in order."""
    places: list[int] = np.unique(np.concatenate([ends.highest, ends.lowest])).tolist()
    return places


def _ends(vectors: np.ndarray, k: int) -> Ends:
    """Find the ends of vectors by stable sorts: equal entries in the order of their ids."""
    falling = np.argsort(-vectors, axis=0, kind="stable")[:k].T
    rising = np.argsort(vectors, axis=0, kind="stable")[:k].T
    columns = np.arange(vectors.shape[1])[:, None]
    return Ends(
        highest=falling.astype(np.int64),
        highest_values=vectors[falling, columns],
        lowest=rising.astype(np.int64),
        lowest_values=vectors[rising, columns],
    )


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
        columns = {"head": list(map(head_name, self.heads)), "score": self.scores}
        columns |= {name: getattr(self, name) for name in ("by_construction", "top1", "top5")}
        return data_frame(columns)


def copying_scores(
    model: AttentionOnlyTransformer, heads: Iterable[HeadLike] | None = None, *, progress: Progress | None = None
) -> CopyingScores:
    """Return the copying score and the copying rate of each of these heads alone, by default of all heads.

    `progress(done, total)` counts heads. Cost and errors are those of `copying_rate`, for each head.
    """
    require_ours(model, "copying_scores")
    all_heads = product(range(model.cfg.n_layers), range(model.cfg.n_heads))
    heads = as_heads(list(all_heads if heads is None else heads), model.cfg)
    rates, spectra = [], []
    for done, head in enumerate(heads):
        if progress is not None:
            progress(done, len(heads))
        rates.append(copying_rate(model, head))
        spectra.append(spectrum(ov_circuit(model, head), 1, n_vectors=1))
    scores = [result.copying_score for result in spectra]
    return CopyingScores(
        heads=heads,
        n_tokens=rates[0].n_tokens,
        scores=np.array([np.nan if score is None else score for score in scores], dtype=np.float64),
        by_construction=np.array([result.by_construction for result in spectra]),
        top1=np.array([rate.top1 for rate in rates]),
        top5=np.array([rate.top5 for rate in rates]),
    )
