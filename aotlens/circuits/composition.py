"""The composition of heads: how much a later one reads of an earlier one's writes, beside the two randomly rotated.

With W_OV = W_V W_O and W_QK = W_Q W_Kᵀ (rows; see `aotlens.conventions`), the composition of an earlier head e and a
later head l is (Elhage et al. 2021, "Analyzing a two-layer model"; there W is the transpose)

    q   ‖W_OV^e W_QK^l ‖ / (‖W_OV^e‖ ‖W_QK^l‖)    what l's queries read
    k   ‖W_OV^e W_QK^lᵀ‖ / (‖W_OV^e‖ ‖W_QK^l‖)    what l's keys read
    v   ‖W_OV^e W_OV^l ‖ / (‖W_OV^e‖ ‖W_OV^l‖)    what l's values read: the virtual head e → l

in Frobenius norms. An MSSA head has W_QK = U Uᵀ, which is symmetric: its q and k composition are one number. Rotary
positions make W_QK = W_Q R_δ W_Kᵀ: at one `distance` δ, or squared norms are means over the distances of a whole
context, weighted by pairs of positions (then q and k of an MSSA head differ).

**The null.** The number alone says little: it is never 0, since two subspaces of one stream overlap. So its numerator,
squared, T = ‖A B‖² with A the earlier head's matrix and B the later one's, is compared with T = ‖A R B‖² with R a
random rotation of the stream: the same two heads, with all their singular values, whose directions know nothing of each
other. (Independent Gaussian heads are no such null: a trained head has a few large singular values, which leaves the
mean as it is and spreads T three to four times wider.) R turns the later head as a whole, so that ties inside a head
(MSSA's one matrix, a tied output) are kept. `aotlens.circuits.nulls` derives mean and variance of T and draws its
tails. R acts on D dimensions: d_model, or d_model − 1 where a norm's centring leaves one out (`folded`).

**The second null, which decides.** A stream that all heads share rejects rotations for many pairs: where all heads,
drawn independently, share a stream of 32 dimensions whose variances fall as 1 ÷ √rank, rotations are rejected at p ≤
.05 in 44% of pairs, as 1 ÷ rank in 99%. So the later head's directions are also flipped, each by a fair coin, in the
eigenbasis of the covariance of the stream that it reads (`aotlens.circuits.nulls`, which derives mean and
variance): that keeps what every direction carries. The stream is that of a text, with `data`, and otherwise that of the
embeddings, tokens and positions taken as equally likely. `edges` are the pairs with `z_signs` of `EDGE_Z` (3) or more.
Simulated (6,912 pairs each), independent heads of streams that fall as 1 ÷ √rank, 1 ÷ rank and 1 ÷ rank² reach it in
.5%, .4% and .1% of pairs, and z of 3 against rotations in 6%, 51% and 87%. That holds where the basis is that of the
stream which the heads share, and layers after the first do not read the embeddings: heads drawn independently in the
stream that a later layer of a trained model reads reach 3 in every pair by the embeddings' basis, and in .1% to .3% by
the text's. **So without `data`, `edges` are candidates.** With it, pairs that cannot compose, the wrong way round,
still reach 3 in up to 2%, in MSSA in 13 and 21% (`python -m benchmarks composition_nulls`): heads of one model share
more than their stream's variances.

**What neither says.** A score far below its null is no absence of composition: the head reads mostly something else,
and still reads this. Neither score nor z sees size: a head that writes next to nothing can have the score of a strong
one, so look at the product's norm.

**On a text.** Weights say what a head could write. With `data`, W_OV^e is replaced by what e did write there: with M
the covariance over positions of the rows C r / s (r its result, s the later layer's scale), T = tr(M N), N the later
head's B Bᵀ with gain and centring, the score is √(T ÷ (tr M · tr N)), and the null turns the later head against this M.

A virtual head's product is [d_model, d_model]; it is never formed. With later = F Sᵀ and X = W_O^e F [d_head, d_head],
‖W_V W_O F Sᵀ‖² = ⟨W_VᵀW_V X, X SᵀS⟩: Gram matrices, in float64, right to 1e-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from aotlens.circuits.distance import checked_distance
from aotlens.circuits.head_pairs import HeadPairs, Mode, Written, written_moments
from aotlens.circuits.nulls import TIED, Heads, eigenbasis, rotation_mean, rotation_std, sign_moments, squared_corners
from aotlens.conventions import Progress, require_choice, require_whole
from aotlens.models import AttentionOnlyTransformer, ModelConfig, folded_norm, require_ours
from aotlens.models.weights import double
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

_MODES: tuple[Mode, ...] = ("q", "k", "v")

#: `Composition.z_signs` from which a pair is an edge.
EDGE_Z = 3.0
#: The z against rotations for which p-values are drawn: below it nobody asks, above it hardly a rotation reaches.
BAND = (0.0, 8.0)


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
    """The ratios' numerators, the Frobenius norms of the products: how large what the later head reads is."""
    rank: Int64[np.ndarray, "layer head layer head"]
    """The place of the earlier head among all that the later head can read, by `values`: 1 is the highest."""
    z: Float64[np.ndarray, "layer head layer head"]
    """(norms² − random_mean) / random_std: of the square, which is skewed, so no p-value can be read off it. NaN also
    where no rotation changes the product."""
    z_signs: Float64[np.ndarray, "layer head layer head"]
    """(norms² − signs_mean) / signs_std: the z of the square against flipped signs; NaN also where no flip changes the
    product."""
    signs_mean: Float64[np.ndarray, "layer head layer head"]
    """The mean of the squared norm over flips of signs, exactly."""
    signs_std: Float64[np.ndarray, "layer head layer head"]
    """The standard deviation of the squared norm over flips of signs, exactly."""
    p_above: Float64[np.ndarray, "layer head layer head"]
    """(1 + rotations that reach norms²) / (1 + n_random): one-sided, small where the pair composes. NaN where none were
    drawn: without `n_random`, and for pairs whose z lies outside `BAND`, of which it says enough."""
    p_below: Float64[np.ndarray, "layer head layer head"]
    """(1 + rotations that stay at or below norms²) / (1 + n_random): one-sided, small where the two heads avoid each
    other. NaN where `p_above` is."""
    random_mean: Float64[np.ndarray, "layer head layer head"]
    """The mean of the squared norm over rotations of the later head, exactly."""
    random_std: Float64[np.ndarray, "layer head layer head"]
    """The standard deviation of the squared norm over rotations of the later head, exactly; NaN where no rotation
    changes the product."""
    edges: Bool[np.ndarray, "layer head layer head"]
    """Pairs whose `z_signs` is `EDGE_Z` or more: candidates, unless a text gave the stream (`data`)."""
    random_rms: float | int
    """Root mean square of `values` over rotations: 1/√D, whatever the two heads."""
    n_random: int
    """The rotations drawn for `p_above` and `p_below`, which all pairs share; 0 for none."""
    n_positions: int | None = None
    """The number of positions of the text that the earlier heads wrote on; None where their weights stand for them."""

    @property
    def headline(self) -> str:
        n_pairs = int(_is_pair(*self.values.shape[:2]).sum())
        return f"{int(self.edges.sum())} of {n_pairs} pairs of heads have z ≥ {EDGE_Z:g} against flipped signs"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a pair, the highest score first; no rows for a model of one layer."""
        pair = _is_pair(*self.values.shape[:2])
        names = ("earlier_layer", "earlier_head", "later_layer", "later_head")
        columns = dict(zip(names, np.nonzero(pair), strict=True)) | {"composition": self.values[pair]}
        columns |= {"rank": self.rank[pair], "edge": self.edges[pair], "z_signs": self.z_signs[pair], "z": self.z[pair]}
        columns |= {"p_above": self.p_above[pair], "p_below": self.p_below[pair], "norm": self.norms[pair]}
        for name in ("random_mean", "random_std", "signs_mean", "signs_std"):
            columns[name] = getattr(self, name)[pair]
        return data_frame(columns).sort_values("composition", ascending=False, kind="stable", ignore_index=True)


def composition(
    model: AttentionOnlyTransformer,
    mode: str = "q",
    *,
    folded: bool = False,
    data: Tensor | str | list[str] | None = None,
    attention_mask: Tensor | None = None,
    about_mean: bool = True,
    n_random: int = 0,
    seed: int = 0,
    distance: int | None = None,
    progress: Progress | None = None,
) -> Composition:
    """Return the q, k or v composition of every pair of heads in different layers, and how far it is from chance.

    Formulas, the null and what it does not say stand at the head of this module. The weights are the model's own, as
    TransformerLens's `all_composition_scores` takes them: without the gain of a layer's norm, centring or biases,
    whatever the scale of scores; the gain of a norm of queries or keys is part of W_Q or W_K. `folded=True` takes what
    the heads do to the stream instead: the norm's gain and centring in what a head reads, and centring in what it
    writes (it removes what no later head can see, which in a trained model may be most of a head's norm). Without a
    norm the two are the same. Score and null always have the same weights.

    `data`, a text, texts, or ids `[pos]` or `[sequence, pos]`, takes what the earlier heads write there in place of
    what their weights could, and implies `folded`: their covariance over positions, or with `about_mean=False` their
    second moment, in which a constant that a head writes everywhere counts. One forward pass more. `attention_mask`,
    of the ids' shape, is True (or 1) at ids that are no padding, which alone count.

    With rotary positions `distance` is that from source to destination, which every layer but the first has to see (no
    earlier head feeds that); None averages squared norms over all of them.

    Both z are exact. `n_random` rotations, drawn from `seed`, give p-values of the pairs whose z lies in `BAND`.
    `progress(done, total)` counts later layers.

    A model of one layer has no pairs: zeros, and an empty `to_frame()`.

    Time: O(pairs · d_model²) in float64 on the CPU, and O(n_random · (d_head³ + heads · d_head² + pairs · d_head)) for
    rotations. Memory: 64 rows of a d_model × d_model matrix a head, and some 64 MB of rotations.

    Raises `ValueError` for another mode, for q and k where `phi="fixed"` leaves no queries and keys, for fewer than no
    rotations, for weights that are not finite, and for a mask without `data`.
    """
    require_ours(model, "composition", without=("norm_after", "clip_qkv"))
    require_whole("n_random", n_random, 0)
    modes = [require_choice("mode", mode, _MODES)]
    if mode != "v" and not model.cfg.has_query_key:
        raise ValueError(
            f"mode={mode!r}: a model with phi={model.cfg.phi!r} has no queries or keys to compose with; use mode='v'."
        )
    by_mode = _compositions(model, modes, folded, data, attention_mask, about_mean, n_random, seed, distance, progress)
    return by_mode[modes[0]]


def all_compositions(
    model: AttentionOnlyTransformer,
    *,
    folded: bool = False,
    data: Tensor | str | list[str] | None = None,
    attention_mask: Tensor | None = None,
    about_mean: bool = True,
    n_random: int = 0,
    seed: int = 0,
    distance: int | None = None,
    progress: Progress | None = None,
) -> dict[Mode, Composition]:
    """Return `composition` in every mode that the model has (v alone where `phi="fixed"`), by mode.

    The rotations are drawn once for all modes, which takes about a third of the time of three calls, and gives the same
    numbers. Arguments and errors are those of `composition`.
    """
    require_ours(model, "all_compositions", without=("norm_after", "clip_qkv"))
    require_whole("n_random", n_random, 0)
    modes = [mode for mode in _MODES if mode == "v" or model.cfg.has_query_key]
    return _compositions(model, modes, folded, data, attention_mask, about_mean, n_random, seed, distance, progress)


def _checked_distance(cfg: ModelConfig, distance: int | None) -> int | None:
    """The distance, if the layers that earlier heads feed see so far. Raises `ValueError`."""
    fed = [cfg.at_layer(layer) for layer in range(1, cfg.n_layers)] or [cfg]
    return [checked_distance(layer, distance, biases=False) for layer in fed][-1]


@torch.no_grad()
def _compositions(
    model: AttentionOnlyTransformer,
    modes: Sequence[Mode],
    folded: bool,
    data: Any,
    attention_mask: Tensor | None,
    about_mean: bool,
    n_random: int,
    seed: int,
    distance: int | None,
    progress: Progress | None,
) -> dict[Mode, Composition]:
    distance = _checked_distance(model.cfg, distance)
    written = written_moments(model, data, about_mean, attention_mask)
    cfg, folded = model.cfg, folded or written is not None
    pair = _is_pair(cfg.n_layers, cfg.n_heads)
    width = cfg.d_model - 1 if folded and cfg.centres and cfg.d_model > 1 else cfg.d_model
    moments = None if written is None else written.moments
    products = {mode: HeadPairs(model, mode, folded, moments, distance) for mode in modes}
    signs = _sign_moments(model, [*products.values()], folded, written, progress)
    counts: list[Tensor | None] = [None] * len(modes)
    if n_random and pair.any():
        counts = [*_tail_counts([*products.values()], width, n_random, seed)]
    results = {}
    for (mode, pairs), count, (signs_mean, signs_std) in zip(products.items(), counts, signs, strict=True):
        s, t = (values[..., : min(cfg.d_head, width)] for values in (pairs.earlier, pairs.later))
        mean, std = (
            torch.stack([moment(s[:, :, j], t[j], width) for j in range(cfg.n_layers)], 2).numpy()
            for moment in (rotation_mean, rotation_std)
        )
        squares = pairs.norms.numpy() ** 2
        z = np.where(pair, (squares - mean) / std, np.nan)
        above = below = np.full(pair.shape, np.nan)
        if count is not None:
            near = np.isnan(z) | ((z >= BAND[0]) & (z <= BAND[1]))
            above, below = np.where(pair & near, (1 + count.numpy()) / (1 + n_random), np.nan)
        z_signs = (squares - signs_mean) / signs_std
        results[mode] = Composition(
            mode=mode,
            folded=folded,
            values=pairs.values.numpy(),
            norms=pairs.norms.numpy(),
            rank=_ranks(pairs.values, pair),
            z=z,
            z_signs=z_signs,
            signs_mean=signs_mean,
            signs_std=signs_std,
            p_above=above,
            p_below=below,
            random_mean=np.where(pair, mean, np.nan),
            random_std=np.where(pair, std, np.nan),
            edges=np.nan_to_num(z_signs, nan=-np.inf) >= EDGE_Z,
            random_rms=width**-0.5,
            n_random=n_random,
            n_positions=None if written is None else written.n_positions,
        )
    return results


def _sign_moments(
    model: AttentionOnlyTransformer,
    measured: Sequence[HeadPairs],
    folded: bool,
    written: Written | None,
    progress: Progress | None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Mean and standard deviation over flips of signs `[layer, head, layer, head]` for each of `measured`; NaN for no
    pair."""
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    shape = (n_layers, n_heads, n_layers, n_heads)
    results = [(np.full(shape, np.nan), np.full(shape, np.nan)) for _ in measured]
    bases = _stream_bases(model, folded, written)
    every = range(1, n_layers)
    groups = [every] if written is None else [range(layer, layer + 1) for layer in every]
    for group in groups if n_layers > 1 else ():
        basis, last = bases[group[-1]], group[-1]
        earlier = Heads.of(measured[0].writes[:last] @ basis, measured[0].moments[:last, :, last])
        asked = [(place, layer) for place in range(len(measured)) for layer in group]
        later = [
            (layer * n_heads, Heads.of(measured[place].F[layer].mT @ basis, measured[place].grams_S[layer]))
            for place, layer in asked
        ]
        for (place, layer), both in zip(asked, sign_moments(earlier, later), strict=True):
            for target, each in zip(results[place], both, strict=True):
                target[:layer, :, layer] = each.view(layer, n_heads, n_heads).numpy()
        if progress is not None:
            progress(last, n_layers - 1)
    return results


def _stream_bases(
    model: AttentionOnlyTransformer, folded: bool, written: Written | None
) -> Float64[Tensor, "layer d_model d_model"]:
    """Eigenvectors, as columns, of the covariance of the stream that each layer reads, centred if `folded`."""
    if written is not None:
        return torch.stack([eigenbasis(stream) for stream in written.streams])
    d_model = model.cfg.d_model
    covariance = torch.zeros(d_model, d_model, dtype=torch.float64)
    for part in (model.embed, model.pos_embed if model.cfg.positions == "learned" else None):
        for weight in part.parameters() if part is not None else ():
            if weight.shape[-1] == d_model and len(weight) > 1:
                rows = folded_norm(model, None).centre(double(weight)) if folded else double(weight)
                covariance += torch.cov(rows.reshape(-1, d_model).T, correction=0).reshape(d_model, d_model)
    return eigenbasis(covariance).expand(model.cfg.n_layers, -1, -1)


def _is_pair(n_layers: int, n_heads: int) -> np.ndarray:
    """Return whether the earlier layer is before the later one, `[layer, head, layer, head]`."""
    layers = np.arange(n_layers)
    return np.broadcast_to((layers[:, None] < layers)[:, None, :, None], (n_layers, n_heads) * 2)


def _tail_counts(measured: Sequence[HeadPairs], width: int, n: int, seed: int) -> list[Tensor]:
    """Count the rotations that reach each norm², and those at or below it (within `TIED`: both): `[2, layer, head,
    layer, head]`."""
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
