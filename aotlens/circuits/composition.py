"""How much a later head reads of what an earlier one writes, beside heads that know nothing of each other.

With W_OV = W_V W_O and W_QK = W_Q W_Kᵀ (rows; see `aotlens.conventions`), the composition of an earlier head e and a
later head l is (Elhage et al. 2021, "Analyzing a two-layer model"; there W is the transpose)

    q   ‖W_OV^e W_QK^l ‖ / (‖W_OV^e‖ ‖W_QK^l‖)    what l's queries read
    k   ‖W_OV^e W_QK^lᵀ‖ / (‖W_OV^e‖ ‖W_QK^l‖)    what l's keys read
    v   ‖W_OV^e W_OV^l ‖ / (‖W_OV^e‖ ‖W_OV^l‖)    what l's values read: the virtual head e → l

in Frobenius norms. An MSSA head has W_QK = U Uᵀ, which is symmetric: its q and k composition are one number.

The number alone says little: it is never 0, since two random subspaces overlap. If the one head is turned at random
against the other, its mean square is 1/d_model exactly, whatever the heads (E[Q P Qᵀ] = tr P / d_model · I); its mean
lies below 1/√d_model and depends on the shapes. So a score stands beside the mean and standard deviation over random
heads of the same shapes, and as a z-score.

A virtual head's product is [d_model, d_model]; it is never formed. With later = F Sᵀ and X = W_O^e F [d_head, d_head],
‖W_V W_O F Sᵀ‖² = ⟨W_VᵀW_V X, X SᵀS⟩: Gram matrices, in float64, right to 1e-8.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer

if TYPE_CHECKING:
    import pandas as pd

Mode = Literal["q", "k", "v"]
_MODES = ("q", "k", "v")


@dataclass(frozen=True, kw_only=True, eq=False)
class Composition:
    """Every pair's score, indexed [earlier layer, earlier head, later layer, later head]."""

    mode: Mode
    folded: bool
    """Whether the norms' gains and centring are in the weights."""
    values: Float64[np.ndarray, "layer head layer head"]
    """The ratios, 0 to 1; 0 unless the earlier layer is before the later one, and for a head that is zero."""
    norms: Float64[np.ndarray, "layer head layer head"]
    """Their numerators."""
    z: Float64[np.ndarray, "layer head layer head"]
    """(values − random_mean) / random_std; NaN where there is no such pair."""
    random_rms: float | int
    """Root mean square over independent random heads: 1/√width, analytically."""
    random_mean: float | int
    random_std: float | int
    n_random: int
    """The pairs drawn for mean and standard deviation."""

    def to_frame(self) -> pd.DataFrame:
        """One row a pair, the highest z-score first; no rows for a model of one layer."""
        import pandas as pd

        e_layer, e_head, l_layer, l_head = np.nonzero(~np.isnan(self.z))
        at = (e_layer, e_head, l_layer, l_head)
        frame = pd.DataFrame(
            {
                "earlier_layer": e_layer,
                "earlier_head": e_head,
                "later_layer": l_layer,
                "later_head": l_head,
                "composition": self.values[at],
                "z": self.z[at],
                "norm": self.norms[at],
            }
        )
        return frame.sort_values("z", ascending=False, kind="stable", ignore_index=True)


@torch.no_grad()
def composition(
    model: AttentionOnlyTransformer, mode: str = "q", *, folded: bool = False, n_random: int = 1024, seed: int = 0
) -> Composition:
    """The q, k or v composition of every pair of heads in different layers, and how far it is from chance.

    Formulas at the head of this module. The weights are the model's own, as TransformerLens's
    `all_composition_scores` takes them: no gain folded in, no centring, no biases, whatever the scale of scores.
    `folded=True` takes what the heads do to the stream instead: the norm's gain and centring in what a head reads, and
    centring in what it writes (it removes what no later head can see, which in a trained model may be most of a
    head's norm). Without a norm the two are the same.

    `random_mean`, `random_std` and `z` come from `n_random` independent pairs of heads with Gaussian weights (drawn
    from `seed`), of the model's shapes and kind: W_Q = W_K = W_V for MSSA, W_O = W_Vᵀ where tied. With `folded` they
    live in the d_model − 1 dimensions that centring leaves, and the gains are taken to be equal.

    A model of one layer has no pairs: zeros, and an empty `to_frame()`.

    Time: O(pairs · d_model · d_head²) in float64 on the CPU. Memory: one layer's heads against another's.

    Raises `ValueError` for another mode, for q and k where `phi="fixed"` leaves no queries and keys, and for weights
    that are not finite.
    """
    chosen = _checked_mode(model, mode)
    if n_random < 2:
        raise ValueError(f"n_random={n_random}: expected at least 2 pairs, for a standard deviation.")
    norms, values = _norms_and_values(model, chosen, folded)
    cfg = model.cfg
    width = cfg.d_model - 1 if folded and cfg.norm and cfg.d_model > 1 else cfg.d_model
    # Which of its two matrices a random head shares: those of W_OV where tied, those of W_QK in every MSSA head.
    tied_later = cfg.tied_output if chosen == "v" else cfg.attention == "mssa"
    mean, std = _random_level(width, cfg.d_head, cfg.tied_output, tied_later, n_random, seed)
    layers = np.arange(cfg.n_layers)
    pair = np.broadcast_to((layers[:, None] < layers)[:, None, :, None], values.shape)
    distance = (values - mean) / std if std else np.zeros_like(values)
    return Composition(
        mode=chosen,
        folded=folded,
        values=values,
        norms=norms,
        z=np.where(pair, distance, np.nan),
        random_rms=width**-0.5,
        random_mean=mean,
        random_std=std,
        n_random=n_random,
    )


@torch.no_grad()
def virtual_head_norms(
    model: AttentionOnlyTransformer, *, folded: bool = False
) -> Float64[np.ndarray, "layer head layer head"]:
    """‖W_OV^earlier W_OV^later‖ (Frobenius) of every virtual head, [earlier layer, head, later layer, head].

    0 unless the earlier layer is before the later one. Divided by the two heads' own norms it is
    `composition(model, "v").values`. `folded`, cost and memory as there.
    """
    return _norms_and_values(model, "v", folded)[0]


def _checked_mode(model: AttentionOnlyTransformer, mode: str) -> Mode:
    for known in _MODES:
        if mode == known:
            if known != "v" and not model.cfg.has_query_key:
                raise ValueError(
                    f"mode={mode!r}: a model with phi='fixed' has no queries or keys to compose with; use mode='v'."
                )
            return known  # type: ignore[return-value]
    raise ValueError(f"mode={mode!r}: expected 'q', 'k' or 'v'.")


def _norms_and_values(model: AttentionOnlyTransformer, mode: Mode, folded: bool) -> tuple[np.ndarray, np.ndarray]:
    """Numerators and ratios, both [earlier layer, head, later layer, head]."""
    _check_finite(model, mode)
    W_V, W_O = _reads(model, "W_V", folded), _writes(model, folded)
    if mode == "v":
        F, S = W_V, W_O.mT  # the later head's product is F Sᵀ
    else:
        W_Q, W_K = _reads(model, "W_Q", folded), _reads(model, "W_K", folded)
        F, S = (W_Q, W_K) if mode == "q" else (W_K, W_Q)
    grams_V, grams_S = W_V.mT @ W_V, S.mT @ S
    earlier_norms = (grams_V * (W_O @ W_O.mT)).sum((-2, -1)).sqrt()
    later_norms = ((F.mT @ F) * grams_S).sum((-2, -1)).sqrt()
    n_layers, n_heads = W_V.shape[:2]
    squares = torch.zeros(n_layers, n_heads, n_layers, n_heads, dtype=torch.float64)
    for i in range(n_layers):
        for j in range(i + 1, n_layers):
            X = W_O[i][:, None] @ F[j]  # [earlier head, later head, d_head, d_head]
            squares[i, :, j] = ((grams_V[i][:, None] @ X) * (X @ grams_S[j])).sum((-2, -1))
    norms = squares.clamp(min=0).sqrt()  # rounding can leave −1e-16 where nothing is read
    scale = earlier_norms[:, :, None, None] * later_norms
    return norms.numpy(), torch.where(scale > 0, norms / scale, 0.0).numpy()


def _check_finite(model: AttentionOnlyTransformer, mode: Mode) -> None:
    for name in ("W_V", "W_O") if mode == "v" else ("W_V", "W_O", "W_Q", "W_K"):
        wrong = (~getattr(model, name).isfinite()).flatten(2).any(-1).nonzero()
        if len(wrong):
            heads = ", ".join(f"{layer}.{head}" for layer, head in wrong.tolist())
            raise ValueError(f"{name}: expected finite weights, got others in head {heads}; did its training diverge?")


def _reads(model: AttentionOnlyTransformer, name: str, folded: bool) -> Tensor:
    """W_Q, W_K or W_V `[layer, head, d_model, d_head]`, in float64; `folded`: behind its layer's norm."""
    weight = getattr(model, name).detach().cpu().double()
    if folded and model.cfg.norm:
        gains = torch.stack([block.ln1.w.detach().cpu().double() for block in model.blocks])
        weight = weight * gains[:, None, :, None]
        weight = weight - weight.mean(2, keepdim=True)
    return weight


def _writes(model: AttentionOnlyTransformer, folded: bool) -> Tensor:
    """W_O `[layer, head, d_head, d_model]`, in float64; `folded`: as a norm centres it."""
    weight = model.W_O.detach().cpu().double()
    return weight - weight.mean(-1, keepdim=True) if folded and model.cfg.norm else weight


@lru_cache(maxsize=64)
def _random_level(
    d_model: int, d_head: int, tied_earlier: bool, tied_later: bool, n_pairs: int, seed: int
) -> tuple[float, float]:
    """Mean and standard deviation of the ratio over independent pairs of Gaussian heads.

    The earlier head is A B with A `[d_model, d_head]`, B `[d_head, d_model]`, the later one C Dᵀ; A = Bᵀ and D = C
    where tied. The ratio depends on small matrices alone, whose distributions are known: with B = L Qᵀ (Q orthonormal),
    L is triangular (Bartlett); QᵀC = G is Gaussian and independent of L; what C has outside of Q's span enters CᵀC
    only, again through a triangular factor. Then

        ‖A B C Dᵀ‖² = ⟨P G, G DᵀD⟩    ‖A B‖² = tr P    ‖C Dᵀ‖² = ⟨CᵀC, DᵀD⟩,    P = Lᵀ AᵀA L

    The mean square is known, so the mean follows from the variance, with far less noise than a mean of ratios has.
    """
    rng = np.random.default_rng(seed)
    size = min(d_model, d_head)
    batch = max(1, min(n_pairs, 2**20 // d_head**2))  # some 100 MB
    ratios = []
    for start in range(0, n_pairs, batch):
        n = min(batch, n_pairs - start)
        L = _triangular(rng, n, d_model, d_head).mT
        G = torch.from_numpy(rng.standard_normal((n, size, d_head)))
        CC = G.mT @ G + _gram(_triangular(rng, n, d_model - size, d_head))
        AA = L @ L.mT if tied_earlier else _gram(_triangular(rng, n, d_model, d_head))
        DD = CC if tied_later else _gram(_triangular(rng, n, d_model, d_head))
        P = L.mT @ AA @ L
        square = ((P @ G) * (G @ DD)).sum((-2, -1))
        scale = P.diagonal(dim1=-2, dim2=-1).sum(-1) * (CC * DD).sum((-2, -1))
        ratios.append((square / scale).sqrt())
    variance = torch.cat(ratios).var().item()
    if variance < 1e-18:  # in one dimension every ratio is 1
        return d_model**-0.5, 0.0
    return max(0.0, 1 / d_model - variance) ** 0.5, variance**0.5


def _triangular(rng: np.random.Generator, n: int, rows: int, columns: int) -> Tensor:
    """`n` independent R of Gaussian matrices `[rows, columns]` = Q R (Bartlett 1933).

    Normal above the diagonal; χ with rows − i degrees of freedom on it.
    """
    size = min(rows, columns)
    R = np.triu(rng.standard_normal((n, size, columns)))
    on = np.arange(size)
    R[:, on, on] = np.sqrt(rng.chisquare(rows - on, (n, size)))
    return torch.from_numpy(R)


def _gram(R: Tensor) -> Tensor:
    return R.mT @ R
