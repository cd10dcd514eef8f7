"""The subspaces that heads read, the angles between them, and what random subspaces would have.

*aot* writes an MSSA head as the projection on a subspace U_k and assumes that the subspaces of a layer are nearly
orthogonal (Eq. 7). Here a head's subspace is the span of the columns of its folded map: the norm's gain and centring
are in it, so that it lies in the stream's D = d_model − 1 centred dimensions (D = d_model without a norm). The map is
U_k for MSSA, and W_V for MHSA, whose queries and keys read subspaces of their own.

For two subspaces of p and q dimensions with orthonormal bases A and B, the cosines of the principal angles are the
singular values of AᵀB, and their squares sum to the **overlap** ‖AᵀB‖². Rotated against each other at random,

    E ‖AᵀB‖² = pq / D,    Var ‖AᵀB‖² = 2pq (D − p)(D − q) ÷ (D² (D − 1)(D + 2))

(`aotlens.circuits.nulls`, with all singular values 1). The largest cosine has no such formula and is
simulated.

That null leaves out what all heads of a layer share without having learned it: the gain of the norm before them, which
stretches every folded map alike. A second null draws the heads' weights from a Gaussian and folds the same gains and
centring in; beside it an overlap says what the weights themselves share. Without a norm both nulls agree.

K subspaces of p dimensions can be orthogonal only if K·p ≤ D; over the layers of a model L·K·p > D as soon
as it has more than one or two, so that subspaces of different layers must overlap.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from aotlens.circuits.nulls import TIED, corners, rotation_mean, rotation_std
from aotlens.conventions import require_seed, require_whole
from aotlens.models import AttentionOnlyTransformer, folded_norm, require_ours
from aotlens.models.weights import double
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadSubspaces(Result):
    """The subspace of every head, and every pair's principal angles, indexed [layer, head, layer, head].

    A pair stands in both orders, and a head beside itself has cosines 1.
    """

    matrix: str
    """The map whose columns span them: `"U"` (MSSA) or `"W_V"` (MHSA)."""
    width: int
    """D: d_model − 1 behind a norm, else d_model."""
    bases: Float64[np.ndarray, "layer head d_model d_head"]
    """Orthonormal columns by falling singular value; zeros beyond a subspace's rank."""
    singular_values: Float64[np.ndarray, "layer head d_head"]
    """The singular values of the folded map, falling."""
    cosines: Float64[np.ndarray, "layer head layer head d_head"]
    """The cosines of the principal angles, falling; zeros beyond the smaller rank."""
    random_mean: Float64[np.ndarray, "layer head layer head"]
    """The mean of `overlap` over random rotations of one of the two, exactly."""
    random_std: Float64[np.ndarray, "layer head layer head"]
    """Its standard deviation, exactly; NaN where no rotation changes it (a subspace that is zero or everything)."""
    random_largest: Float64[np.ndarray, "layer head layer head"]
    """The mean of the largest cosine over random rotations, simulated."""
    p_largest: Float64[np.ndarray, "layer head layer head"]
    """(1 + rotations whose largest cosine reaches the pair's) ÷ (1 + n_random): one-sided, small for a pair that shares
    a direction."""
    n_random: int
    behind_gain_mean: Float64[np.ndarray, "layer head layer head"]
    """The mean of `overlap` over Gaussian weights of the same ranks behind the same norms, simulated."""
    behind_gain_std: Float64[np.ndarray, "layer head layer head"]
    """Its standard deviation over draws; NaN where there is one draw."""
    n_weights: int
    """Draws of the Gaussian weights; all pairs share them."""

    @property
    def ranks(self) -> Int64[np.ndarray, "layer head"]:
        """The dimension of every head's subspace."""
        return (np.abs(self.bases).sum(2) > 0).sum(-1)

    @property
    def effective_ranks(self) -> Float64[np.ndarray, "layer head"]:
        """exp(−Σ s ln s), s the singular values ÷ their sum (Roy and Vetterli 2007): the rank where all are alike, less
        where the head reads some directions more than others; NaN for a head that is zero."""
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = self.singular_values / self.singular_values.sum(-1, keepdims=True)
            entropy = -np.where(shares > 0, shares * np.log(shares), 0.0).sum(-1)
        return np.where(np.isnan(shares).any(-1), np.nan, np.exp(entropy))

    @property
    def overlap(self) -> Float64[np.ndarray, "layer head layer head"]:
        """Σcos² over a pair's principal angles: 0 where orthogonal, the smaller rank where one contains the other."""
        return np.square(self.cosines).sum(-1)

    @property
    def z(self) -> Float64[np.ndarray, "layer head layer head"]:
        """The standard deviations by which `overlap` exceeds random subspaces; the law is skewed for small ranks."""
        return (self.overlap - self.random_mean) / self.random_std

    @property
    def layer_ratios(self) -> tuple[float, float]:
        """The mean overlap of two heads of a layer ÷ that of random subspaces, and ÷ that of random weights behind the
        same norms; NaN for layers of one head."""
        if self.bases.shape[1] < 2:
            return math.nan, math.nan
        own, random, behind_gain = (
            float(values[self.same_layer].mean()) for values in (self.overlap, self.random_mean, self.behind_gain_mean)
        )
        return own / random, own / behind_gain

    @property
    def same_layer(self) -> Bool[np.ndarray, "layer head layer head"]:
        """Pairs of two heads of one layer."""
        n_layers, n_heads = self.bases.shape[:2]
        layers = np.repeat(np.arange(n_layers), n_heads)
        pair = (layers[:, None] == layers) & ~np.eye(len(layers), dtype=bool)
        return pair.reshape(n_layers, n_heads, n_layers, n_heads)

    @property
    def room(self) -> str:
        """Whether the ranks leave room for orthogonal subspaces, in a layer and over all layers."""
        per_layer, total = int(self.ranks.sum(1).max()), int(self.ranks.sum())
        within = "fit" if per_layer <= self.width else "cannot be orthogonal"
        across = "fit" if total <= self.width else "cannot all be orthogonal"
        return (
            f"a layer's {per_layer} dimensions {within} in {self.width}, and the {total} of all layers {across}"
            if len(self.bases) > 1
            else f"the layer's {per_layer} dimensions {within} in {self.width}"
        )

    @property
    def headline(self) -> str:
        if self.bases.shape[1] < 2:
            return self.room
        of_random, of_weights = self.layer_ratios
        return (
            f"heads of a layer overlap {of_random:.2f} times as much as random subspaces, and {of_weights:.2f} times "
            f"as much as random weights behind the same norms; {self.room}"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a pair of heads, the largest z first; a model of one head has none."""
        import pandas as pd

        n_layers, n_heads = self.bases.shape[:2]
        first, second = np.triu_indices(n_layers * n_heads, 1)
        columns: dict[str, np.ndarray] = {}
        for name, place in (("first", first), ("second", second)):
            columns |= {f"{name}_layer": place // n_heads, f"{name}_head": place % n_heads}
        square = (n_layers * n_heads,) * 2
        for name in ("overlap", "random_mean", "random_std", "z", "behind_gain_mean", "behind_gain_std"):
            columns[name] = getattr(self, name).reshape(square)[first, second]
        columns["largest_cosine"] = self.cosines[..., 0].reshape(square)[first, second]
        for name in ("random_largest", "p_largest"):
            columns[name] = getattr(self, name).reshape(square)[first, second]
        return pd.DataFrame(columns).sort_values("z", ascending=False, kind="stable", ignore_index=True)

    def head_frame(self) -> pd.DataFrame:
        """Return one row a head: the dimension of its subspace, its effective rank, and the mean overlap with the other
        heads of its layer beside that of random subspaces, and of random weights behind the same norm."""
        import pandas as pd

        n_layers, n_heads = self.bases.shape[:2]
        pairs = self.same_layer
        columns: dict[str, np.ndarray] = {}
        columns["layer"], columns["head"] = (part.ravel() for part in np.indices((n_layers, n_heads)))
        columns |= {"rank": self.ranks.ravel(), "effective_rank": self.effective_ranks.ravel()}
        for name in ("overlap", "random_mean", "behind_gain_mean"):
            sums = np.where(pairs, getattr(self, name), 0.0).sum((2, 3))
            columns[name] = (sums / (n_heads - 1)).ravel() if n_heads > 1 else np.full(n_layers, np.nan)
        return pd.DataFrame(columns)


def subspaces(
    model: AttentionOnlyTransformer, *, n_random: int = 1000, n_weights: int = 20, seed: int = 0
) -> HeadSubspaces:
    """Measure the subspaces that the heads read, their principal angles and effective ranks, and compare them with
    random subspaces.

    The head of this module defines a subspace and what it is compared with. Biases and the scale of scores change no
    subspace. `n_random` rotations, drawn from `seed`, give the law of the largest cosine, and `n_weights` draws of all
    heads' weights the overlap behind the norms' gains.

    Time: O(n_weights · heads² · d_model · d_head²) in float64 on the CPU, and O(n_random · d_head³). Memory: heads² ·
    d_head² numbers. Raises `ValueError` for weights that are not finite and fewer than one rotation or draw.
    """
    require_whole("n_random", n_random, 1)
    require_whole("n_weights", n_weights, 1)
    require_ours(model, "subspaces")
    cfg = model.cfg
    weights = double(model.W_V)
    folded = torch.stack([folded_norm(model, layer).into(weight) for layer, weight in enumerate(weights)])
    width = cfg.d_model - 1 if cfg.centres and cfg.d_model > 1 else cfg.d_model
    left, singular, _ = torch.linalg.svd(folded, full_matrices=False)
    floor = singular.amax(-1, keepdim=True) * max(folded.shape[-2:]) * torch.finfo(folded.dtype).eps
    inside = singular > floor
    bases = left * inside[..., None, :]
    if bases.shape[-1] < cfg.d_head:  # a head wider than the stream
        bases = torch.nn.functional.pad(bases, (0, cfg.d_head - bases.shape[-1]))
        singular = torch.nn.functional.pad(singular, (0, cfg.d_head - singular.shape[-1]))
    flat = bases.flatten(0, 1)
    cosines = torch.stack([torch.linalg.svdvals(basis.mT @ flat) for basis in flat])
    # A singular value of exactly 1 may come out above it.
    cosines = cosines.clamp(max=1).unflatten(1, bases.shape[:2]).unflatten(0, bases.shape[:2])
    ranks = inside.sum(-1)
    ones = (torch.arange(cfg.d_head) < ranks[..., None]).double()
    behind_gain = _behind_gain(model, ranks, n_weights, seed)
    random_largest, p_largest = _largest_cosines(cosines[..., 0].numpy(), ranks.numpy(), width, n_random, seed)
    return HeadSubspaces(
        matrix="U" if cfg.attention == "mssa" else "W_V",
        width=width,
        bases=bases.numpy(),
        singular_values=singular.numpy(),
        cosines=cosines.numpy(),
        random_mean=rotation_mean(ones, ones, width).numpy(),
        random_std=rotation_std(ones, ones, width).numpy(),
        random_largest=random_largest,
        p_largest=p_largest,
        n_random=n_random,
        behind_gain_mean=behind_gain.mean(0),
        behind_gain_std=behind_gain.std(0, ddof=1) if n_weights > 1 else np.full(behind_gain.shape[1:], np.nan),
        n_weights=n_weights,
    )


def _behind_gain(
    model: AttentionOnlyTransformer, ranks: Tensor, n_weights: int, seed: int
) -> Float64[np.ndarray, "draw layer head layer head"]:
    """Σcos² of every pair, were the heads' weights Gaussian and their norms as they are."""
    generator = torch.Generator().manual_seed(require_seed(seed))
    n_layers, n_heads = ranks.shape
    most = max(int(ranks.max()), 1)
    columns = (torch.arange(most) < ranks[..., None]).double()
    overlaps = []
    for _ in range(n_weights):
        shape = (n_layers, n_heads, model.cfg.d_model, most)
        weights = torch.randn(shape, generator=generator, dtype=torch.float64)
        folded = torch.stack([folded_norm(model, layer).into(weight) for layer, weight in enumerate(weights)])
        # The first columns of a QR decomposition span the first columns of the map: those of a head's own rank.
        bases = torch.linalg.qr(folded).Q * columns[..., None, :]
        flat = bases.flatten(0, 1).transpose(0, 1).flatten(1)  # [d_model, head · rank]
        square = (flat.mT @ flat).square().unflatten(1, (-1, most)).unflatten(0, (-1, most)).sum((1, 3))
        overlaps.append(square.view(n_layers, n_heads, n_layers, n_heads).numpy())
    return np.stack(overlaps)


def _largest_cosines(
    largest: np.ndarray, ranks: np.ndarray, width: int, n_random: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Compute every pair's mean largest cosine of random subspaces of the same ranks, and its one-sided p-value."""
    mean, p_value = np.zeros_like(largest), np.ones_like(largest)
    sizes = np.broadcast_to(ranks[:, :, None, None], largest.shape), np.broadcast_to(ranks, largest.shape)
    blocks = list(corners(width, int(ranks.max()), n_random, seed)) if ranks.max() else []
    for p, q in {(int(p), int(q)) for p, q in zip(*(size.flat for size in sizes), strict=True) if p and q}:
        drawn = torch.cat([torch.linalg.matrix_norm(block[:, :p, :q], ord=2) for block in blocks]).numpy()
        pairs = (sizes[0] == p) & (sizes[1] == q)
        reached = np.sort(drawn)
        below = np.searchsorted(reached, largest[pairs] - TIED)
        mean[pairs], p_value[pairs] = drawn.mean(), (1 + n_random - below) / (1 + n_random)
    return mean, p_value
