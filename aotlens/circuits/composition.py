"""How much a later head reads of what an earlier one writes, beside the same two heads turned at random.

With W_OV = W_V W_O and W_QK = W_Q W_Kᵀ (rows; see `aotlens.conventions`), the composition of an earlier head e and a
later head l is (Elhage et al. 2021, "Analyzing a two-layer model"; there W is the transpose)

    q   ‖W_OV^e W_QK^l ‖ / (‖W_OV^e‖ ‖W_QK^l‖)    what l's queries read
    k   ‖W_OV^e W_QK^lᵀ‖ / (‖W_OV^e‖ ‖W_QK^l‖)    what l's keys read
    v   ‖W_OV^e W_OV^l ‖ / (‖W_OV^e‖ ‖W_OV^l‖)    what l's values read: the virtual head e → l

in Frobenius norms. An MSSA head has W_QK = U Uᵀ, which is symmetric: its q and k composition are one number.

**The null.** The number alone says little: it is never 0, since two subspaces of one stream overlap. So its numerator,
squared, T = ‖A B‖² with A the earlier head's matrix and B the later one's, stands beside T = ‖A R B‖² with R a random
rotation of the stream: the same two heads, with all their singular values, whose directions know nothing of each other.
(Independent Gaussian heads are no such null: a trained head has a few large singular values, which leaves the mean as
it is and spreads T three to four times wider.) R turns the later head as a whole, so that ties inside a head (MSSA's
one matrix, a tied output) are kept. `aotlens.circuits.random_rotation` derives mean and variance of T and draws its
tails. R acts on D dimensions: d_model, or d_model − 1 where a norm's centring leaves one out (`folded`).

**What it does not say.** A stream that all heads share (an embedding whose variance lies in few directions, say)
rejects this null for many pairs; the rank among the later head's partners tells which of them stand out. Where the
later head is turned at random, p ≤ .05 in 5 to 6% of pairs, whatever the earlier one's moments (low rank, drifting
text); where all heads, drawn independently, share a stream of 32 dimensions whose variances fall as 1 ÷ rank^¼, in 13%,
as 1 ÷ √rank in 44%, and as 1 ÷ rank in 99%. A score far
below its null is no absence of composition: the head reads mostly something else, and still reads this. Neither score
nor z sees size: a head that writes next to nothing can have the score of a strong one, so look at the product's norm.

**On a text.** Weights say what a head could write. With `data`, W_OV^e is replaced by what e did write there: with M
the covariance over positions of the rows C r / s (r its result, s the later layer's scale), T = tr(M N), N the later
head's B Bᵀ with gain and centring, the score is √(T ÷ (tr M · tr N)), and the null turns the later head against this M.

A virtual head's product is [d_model, d_model]; it is never formed. With later = F Sᵀ and X = W_O^e F [d_head, d_head],
‖W_V W_O F Sᵀ‖² = ⟨W_VᵀW_V X, X SᵀS⟩: Gram matrices, in float64, right to 1e-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from aotlens.circuits.random_rotation import TIED, rotation_mean, rotation_std, squared_corners
from aotlens.circuits.written import written_moments
from aotlens.models import AttentionOnlyTransformer, folded_norm, require_ours
from aotlens.models.weights import double
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

Mode = Literal["q", "k", "v"]
_MODES: tuple[Mode, ...] = ("q", "k", "v")

#: Share of false edges among `Composition.edges` that is accepted on average (Benjamini and Hochberg 1995).
FALSE_DISCOVERY_RATE = 0.05
#: Rotations at least, and rotations for each pair, so that the smallest p-value can pass as the only edge of all pairs.
LEAST_ROTATIONS, ROTATIONS_PER_PAIR = 2000, 20


@dataclass(frozen=True, kw_only=True, eq=False)
class Composition(Result):
    """Every pair's score, indexed [earlier layer, earlier head, later layer, later head].

    Where the earlier layer is not before the later one there is no pair: 0 in `values`, `norms` and `rank`, False in
    `edges`, NaN elsewhere.
    """

    mode: Mode
    folded: bool
    """Whether the norms' gains and centring are in the weights, those of the score and those of the null alike."""
    values: Float64[np.ndarray, "layer head layer head"]
    """The ratios, 0 to 1; 0 for a head that is zero."""
    norms: Float64[np.ndarray, "layer head layer head"]
    """Their numerators, the Frobenius norms of the products: how large what the later head reads is."""
    rank: Int64[np.ndarray, "layer head layer head"]
    """The place of the earlier head among all that the later head can read, by `values`: 1 is the highest."""
    z: Float64[np.ndarray, "layer head layer head"]
    """(norms² − random_mean) / random_std: of the square, which is skewed, so no p-value can be read off it. NaN also
    where no rotation changes the product."""
    p_above: Float64[np.ndarray, "layer head layer head"]
    """(1 + rotations that reach norms²) / (1 + n_random): one-sided, small where the pair composes."""
    p_below: Float64[np.ndarray, "layer head layer head"]
    """The same for rotations that stay at or below norms²: small where the two heads avoid each other."""
    random_mean: Float64[np.ndarray, "layer head layer head"]
    """The mean of the squared norm over rotations of the later head, exactly."""
    random_std: Float64[np.ndarray, "layer head layer head"]
    """Its standard deviation, exactly; NaN where no rotation changes the product."""
    edges: Bool[np.ndarray, "layer head layer head"]
    """Pairs above their null: Benjamini and Hochberg on `p_above` over all pairs, at a false discovery rate of 5%."""
    random_rms: float | int
    """Root mean square of `values` over rotations: 1/√D, whatever the two heads."""
    n_random: int
    """The rotations drawn for `p_above` and `p_below`; all pairs share them."""
    n_positions: int | None = None
    """Of the text that the earlier heads wrote on; None where their weights stand for them."""

    @property
    def headline(self) -> str:
        n_pairs = int(_is_pair(*self.values.shape[:2]).sum())
        return f"{int(self.edges.sum())} of {n_pairs} pairs of heads are above random rotations"

    def to_frame(self) -> pd.DataFrame:
        """One row a pair, the highest score first; no rows for a model of one layer."""
        import pandas as pd

        pair = _is_pair(*self.values.shape[:2])
        names = ("earlier_layer", "earlier_head", "later_layer", "later_head")
        columns = dict(zip(names, np.nonzero(pair), strict=True)) | {"composition": self.values[pair]}
        columns |= {"rank": self.rank[pair], "edge": self.edges[pair], "z": self.z[pair]}
        columns |= {"p_above": self.p_above[pair], "p_below": self.p_below[pair], "norm": self.norms[pair]}
        columns |= {"random_mean": self.random_mean[pair], "random_std": self.random_std[pair]}
        return pd.DataFrame(columns).sort_values("composition", ascending=False, kind="stable", ignore_index=True)


def composition(
    model: AttentionOnlyTransformer,
    mode: str = "q",
    *,
    folded: bool = False,
    data: Tensor | str | list[str] | None = None,
    about_mean: bool = True,
    n_random: int | None = None,
    seed: int = 0,
) -> Composition:
    """The q, k or v composition of every pair of heads in different layers, and how far it is from chance.

    Formulas, the null and what it does not say stand at the head of this module. The weights are the model's own, as
    TransformerLens's `all_composition_scores` takes them: no gain folded in, no centring, no biases, whatever the scale
    of scores. `folded=True` takes what the heads do to the stream instead: the norm's gain and centring in what a head
    reads, and centring in what it writes (it removes what no later head can see, which in a trained model may be most
    of a head's norm). Without a norm the two are the same. Score and null always have the same weights.

    `data`, a text, texts, or ids `[pos]` or `[sequence, pos]`, takes what the earlier heads write there in place of
    what their weights could, and implies `folded`: their covariance over positions, or with `about_mean=False` their
    second moment, in which a constant that a head writes everywhere counts. One forward pass more.

    `n_random` is the number of rotations drawn from `seed`, by default 20 for each pair and at least 2,000: with fewer
    than 20 a pair, no single pair can pass as the only edge.

    A model of one layer has no pairs: zeros, and an empty `to_frame()`.

    Time: O(pairs · d_model · d_head²) in float64 on the CPU, and O(n_random · (d_head³ + heads · d_head² +
    pairs · d_head)) for the rotations. Memory: one layer's heads against another's, and some 64 MB of rotations.

    Raises `ValueError` for another mode, for q and k where `phi="fixed"` leaves no queries and keys, for fewer than one
    rotation, and for weights that are not finite.
    """
    require_ours(model, "composition")
    written = None if data is None else written_moments(model, data, about_mean)
    return _compositions(model, [_checked_mode(model, mode)], folded, n_random, seed, written)[0]


def all_compositions(
    model: AttentionOnlyTransformer,
    *,
    folded: bool = False,
    data: Tensor | str | list[str] | None = None,
    about_mean: bool = True,
    n_random: int | None = None,
    seed: int = 0,
) -> dict[Mode, Composition]:
    """`composition` in every mode that the model has (v alone where `phi="fixed"`), by mode.

    The rotations are drawn once for all modes, which takes about a third of the time of three calls, and gives the same
    numbers. Arguments and errors are those of `composition`.
    """
    require_ours(model, "all_compositions")
    modes = [mode for mode in _MODES if mode == "v" or model.cfg.has_query_key]
    written = None if data is None else written_moments(model, data, about_mean)
    return dict(zip(modes, _compositions(model, modes, folded, n_random, seed, written), strict=True))


@torch.no_grad()
def _compositions(
    model: AttentionOnlyTransformer,
    modes: Sequence[Mode],
    folded: bool,
    n_random: int | None,
    seed: int,
    written: tuple[Tensor, int] | None,
) -> list[Composition]:
    from scipy.stats import false_discovery_control

    cfg, folded = model.cfg, folded or written is not None
    moments, n_positions = written or (None, None)
    pair = _is_pair(cfg.n_layers, cfg.n_heads)
    n_pairs = int(pair.sum())
    n_rotations = max(LEAST_ROTATIONS, ROTATIONS_PER_PAIR * n_pairs) if n_random is None else n_random
    if n_rotations < 1:
        raise ValueError(f"n_random={n_random}: expected at least 1 rotation, or None for 20 a pair.")
    width = cfg.d_model - 1 if folded and cfg.norm and cfg.d_model > 1 else cfg.d_model
    measured = [_Pairs(model, mode, folded, moments) for mode in modes]
    nulls = (
        _tail_counts(measured, width, n_rotations, seed)
        if n_pairs
        else [torch.zeros(2, *pair.shape, dtype=torch.float64)] * len(modes)
    )
    results = []
    for mode, pairs, counts in zip(modes, measured, nulls, strict=True):
        s, t = (values[..., : min(cfg.d_head, width)] for values in (pairs.earlier, pairs.later))
        mean, std = (
            torch.stack([moment(s[:, :, j], t[j], width) for j in range(cfg.n_layers)], 2).numpy()
            for moment in (rotation_mean, rotation_std)
        )
        above, below = np.where(pair, (1 + counts.numpy()) / (1 + n_rotations), np.nan)
        edges = np.zeros_like(pair)
        if n_pairs:
            edges[pair] = false_discovery_control(above[pair]) <= FALSE_DISCOVERY_RATE
        results.append(
            Composition(
                mode=mode,
                folded=folded,
                values=pairs.values.numpy(),
                norms=pairs.norms.numpy(),
                rank=_ranks(pairs.values, pair),
                z=np.where(pair, (pairs.norms.numpy() ** 2 - mean) / std, np.nan),
                p_above=above,
                p_below=below,
                random_mean=np.where(pair, mean, np.nan),
                random_std=np.where(pair, std, np.nan),
                edges=edges,
                random_rms=width**-0.5,
                n_random=n_rotations,
                n_positions=n_positions,
            )
        )
    return results


def _checked_mode(model: AttentionOnlyTransformer, mode: str) -> Mode:
    for known in _MODES:
        if mode == known:
            if known != "v" and not model.cfg.has_query_key:
                raise ValueError(
                    f"mode={mode!r}: a model with phi={model.cfg.phi!r} has no queries or keys to compose with; use "
                    "mode='v'."
                )
            return known
    raise ValueError(f"mode={mode!r}: expected 'q', 'k' or 'v'.")


def _is_pair(n_layers: int, n_heads: int) -> np.ndarray:
    """Where the earlier layer is before the later one, `[layer, head, layer, head]`."""
    layers = np.arange(n_layers)
    return np.broadcast_to((layers[:, None] < layers)[:, None, :, None], (n_layers, n_heads) * 2)


class _Pairs:
    """The products of every earlier head with every later one, in one mode, float64."""

    norms: Float64[Tensor, "layer head layer head"]
    values: Float64[Tensor, "layer head layer head"]
    earlier: Float64[Tensor, "layer head later singular"]
    """Singular values of the matrix that a head, as the earlier one, writes with for a later layer: W_OV, the same for
    all of them, or on a text Σ^½ W_O, and 0 where the layer is not later."""
    later: Float64[Tensor, "layer head singular"]
    """Those of the matrix that a head, as the later one, reads with."""

    def __init__(self, model: AttentionOnlyTransformer, mode: Mode, folded: bool, moments: Tensor | None) -> None:
        W_V, W_O = _reads(model, "W_V", folded), _writes(model, folded)
        if mode == "v":
            F, S = W_V, W_O.mT  # the later head's product is F Sᵀ
        else:
            W_Q, W_K = _reads(model, "W_Q", folded), _reads(model, "W_K", folded)
            F, S = (W_Q, W_K) if mode == "q" else (W_K, W_Q)
        n_layers, n_heads = W_V.shape[:2]
        if moments is None:
            self.earlier = _singular_values(W_V, W_O.mT)[:, :, None].expand(-1, -1, n_layers, -1)
            moments = (W_V.mT @ W_V)[:, :, None].expand(-1, -1, n_layers, -1, -1)
        else:
            values, vectors = torch.linalg.eigh(moments)
            roots = vectors * values.clamp(min=0).sqrt()[..., None, :]
            self.earlier = _singular_values(roots.mT, W_O.mT[:, :, None])
        self.later, grams_S = _singular_values(F, S), S.mT @ S
        squares = torch.zeros(n_layers, n_heads, n_layers, n_heads, dtype=torch.float64)
        for i in range(n_layers):
            for j in range(i + 1, n_layers):
                X = W_O[i][:, None] @ F[j]  # [earlier head, later head, d_head, d_head]
                squares[i, :, j] = ((moments[i, :, j][:, None] @ X) * (X @ grams_S[j])).sum((-2, -1))
        self.norms = squares.clamp(min=0).sqrt()  # rounding can leave −1e-16 where nothing is read
        scale = self.earlier.norm(dim=-1)[..., None] * self.later.norm(dim=-1)
        self.values = torch.where(scale > 0, self.norms / scale, 0.0)


def _singular_values(left: Tensor, right: Tensor) -> Tensor:
    """Those of every left rightᵀ, falling: min(d_model, d_head) of them, from the small side."""
    triangles = [torch.linalg.qr(factor, mode="r").R for factor in (left, right)]
    return torch.linalg.svdvals(triangles[0] @ triangles[1].mT)


def _tail_counts(measured: Sequence[_Pairs], width: int, n: int, seed: int) -> list[Tensor]:
    """How many of `n` rotations reach each pair's norm², and how many stay at or below it.

    `[2, layer, head, layer, head]` for each of `measured`. A rotation that comes within `TIED` of it counts in both.
    """
    n_layers, n_heads, _, n_singular = measured[0].earlier.shape
    size = min(n_singular, width)
    # Of matrices of norm 1: float32 would take the squares of a head that writes next to nothing for 0.
    write = _of_norm_1(measured[0].earlier)[..., :size].square().float().flatten(0, 1)  # [earlier · head, later, ...]
    same = bool((write == write[:, :1]).all())  # for every later layer, as weights are
    reads = [_of_norm_1(pairs.later)[..., :size].square().float() for pairs in measured]
    squares = [pairs.values.square().float().flatten(0, 1) for pairs in measured]
    counts = [torch.zeros(2, n_layers * n_heads, n_layers, n_heads) for _ in measured]
    for corners in squared_corners(width, size, n, seed):
        turned = write[:, 0] @ corners if same else None  # [rotation, earlier layer · head, singular]
        for read, square, count in zip(reads, squares, counts, strict=True):
            for j in range(1, n_layers):
                earlier = slice(j * n_heads)
                mine = write[earlier, j] @ corners if turned is None else turned[:, earlier]
                random = mine @ read[j].T
                slack = TIED * torch.maximum(random.mean(0), square[earlier, j])
                count[0, earlier, j] += (random >= square[earlier, j] - slack).sum(0)
                count[1, earlier, j] += (random <= square[earlier, j] + slack).sum(0)
    return [count.view(2, n_layers, n_heads, n_layers, n_heads).double() for count in counts]


def _of_norm_1(singular: Tensor) -> Tensor:
    """The singular values `[..., singular]` of every matrix divided by its norm; zeros stay."""
    norm = singular.norm(dim=-1, keepdim=True)
    return torch.where(norm > 0, singular / norm, 0.0)


def _ranks(values: Tensor, pair: np.ndarray) -> np.ndarray:
    """1 + how many of the heads in earlier layers have a higher score with the same later head; 0 for no pair."""
    ranks = np.zeros(values.shape, dtype=np.int64)
    for j in range(1, len(values)):
        scores = values[:j, :, j].flatten(0, 1).numpy()  # [earlier layer · head, later head]
        ranks[:j, :, j] = (1 + (scores[:, None] < scores).sum(1)).reshape(j, *values.shape[1::2])
    return np.where(pair, ranks, 0)


def _reads(model: AttentionOnlyTransformer, name: str, folded: bool) -> Tensor:
    """W_Q, W_K or W_V `[layer, head, d_model, d_head]`, in float64; `folded`: behind its layer's norm."""
    weight = double(getattr(model, name))
    return torch.stack([folded_norm(model, i).into(W) for i, W in enumerate(weight)]) if folded else weight


def _writes(model: AttentionOnlyTransformer, folded: bool) -> Tensor:
    """W_O `[layer, head, d_head, d_model]`, in float64; `folded`: as every later norm centres it."""
    weight = double(model.W_O)
    return folded_norm(model, None).centre(weight) if folded else weight
