"""One mixture, followed layer by layer: where its tokens lie, what attends to what, and whether the rate holds.

`unroll_mixture` is one of the runs that `denoising_rates` repeats over noises and seeds, with its tokens.
`token_points` and `memberships_at` give its tokens as coordinates, and their attention to each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor

from aotlens.conventions import require_choice, require_whole
from aotlens.denoise.subspaces import Mixture, OverflowedTokens, memberships, snr, unroll
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd


#: A layer's ratio counts as exact where it differs from 1 + ητ by less than this, relative; float64 keeps 1e-12.
EXACT = 1e-9


def theorem_rate(step_size: float | int, threshold: float | int) -> float:
    """Return 1 + ητ, by which a layer multiplies the SNR of every cluster (*aot*, Theorem 3.1, Eq. 8)."""
    return 1 + step_size * threshold


@dataclass(frozen=True, kw_only=True)
class Unrolling(Result):
    """A mixture's tokens after every layer, and their SNR."""

    mixture: Mixture
    step_size: float | int
    phi: str
    threshold: float | int | None
    tokens: Float[Tensor, "layer n d_model"]
    """Entry 0 is the tokens as drawn. Layers whose numbers are not finite are left out."""
    snr: Float[Tensor, "layer cluster"]
    overflowed: bool
    """Whether there are fewer layers than requested, since the tokens left the range of numbers."""

    @property
    def headline(self) -> str:
        mean = self.snr.mean(1)
        return f"mean SNR {float(mean[0]):.3g} at first, {float(mean[-1]):.3g} after {len(mean) - 1} layers"

    @property
    def ratios(self) -> Float[Tensor, "later cluster"]:
        """SNR after a layer ÷ before it; one entry fewer than `snr`."""
        return self.snr[1:] / self.snr[:-1]

    @property
    def rate(self) -> float:
        """1 + ητ; NaN for a φ without a threshold, for which the theorem predicts no rate."""
        return math.nan if self.threshold is None else theorem_rate(self.step_size, self.threshold)

    @property
    def exact_layers(self) -> int:
        """The number of layers, from the first on, in which every cluster's ratio is 1 + ητ, within a relative 1e-9."""
        exact = ((self.ratios / self.rate - 1).abs() < EXACT).all(-1)
        return int(exact.long().cumprod(0).sum())

    @property
    def lengths(self) -> Float[Tensor, "layer n cluster"]:
        """‖U_kᵀ z‖, how long each token is within each subspace."""
        return torch.einsum("lnd,kdr->lnkr", self.tokens, self.mixture.bases).norm(dim=-1)

    @property
    def angles(self) -> Float[Tensor, "layer n cluster"]:
        """The principal angle between a token's line and each subspace, arccos(‖U_kᵀ z‖ ÷ ‖z‖), in degrees."""
        # Of a token within a subspace rounding can make the cosine a little more than 1.
        cosines = (self.lengths / self.tokens.norm(dim=-1, keepdim=True)).clamp(max=1)
        return cosines.acos().rad2deg()

    def memberships(self, cluster: int) -> Float[Tensor, "layer query key"]:
        """Return φ(Z U_k U_kᵀ Zᵀ) of one subspace at every layer: what the next layer's head k does with these tokens.

        Memory: layers · n² numbers. Raises `ValueError` if the subspace does not exist.
        """
        n_clusters = len(self.mixture.bases)
        require_whole("cluster", cluster, 0, n_clusters - 1)
        basis = self.mixture.bases[cluster : cluster + 1]
        return torch.cat([memberships(layer, basis, self.phi, self.threshold) for layer in self.tokens])

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each layer and cluster: its SNR, and the ratio to the layer before."""
        n_layers, n_clusters = self.snr.shape
        ratios = torch.cat([self.snr.new_full((1, n_clusters), math.nan), self.ratios])
        return data_frame(
            {
                "layer": [layer for layer in range(n_layers) for _ in range(n_clusters)],
                "cluster": list(range(n_clusters)) * n_layers,
                "snr": self.snr.flatten().tolist(),
                "ratio": ratios.flatten().tolist(),
            }
        )


def unroll_mixture(
    mixture: Mixture, step_size: float | int, phi: str, threshold: float | int | None, n_layers: int
) -> Unrolling:
    """Unroll a mixture through its own subspaces, and measure the SNR layer by layer.

    Where the tokens leave the numbers' range (scores grow with them), the layers before are kept and `overflowed`
    says so. Time and errors are those of `unroll` otherwise.
    """
    require_whole("n_layers", n_layers, 1)
    layers, overflowed = [mixture.tokens], False
    for _ in range(n_layers):
        try:
            layers.append(unroll(layers[-1], mixture.bases, step_size, phi, threshold, 1)[1])
        except OverflowedTokens:
            overflowed = True
            break
    return Unrolling(
        mixture=mixture,
        step_size=step_size,
        phi=phi,
        threshold=threshold,
        tokens=torch.stack(layers),
        snr=torch.stack([snr(tokens, mixture.bases, mixture.labels) for tokens in layers]),
        overflowed=overflowed,
    )


_SUBSCRIPTS = str.maketrans("123", "₁₂₃")


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenPoints(Result):
    """Tokens as coordinates at every layer."""

    kind: str
    """The kind of the picture, of `PICTURES`."""
    coordinates: Float[np.ndarray, "layer n axis"]
    axes: tuple[str, ...]
    ranges: tuple[tuple[float, float], ...]
    """The ranges in which each axis is drawn."""
    labels: Integer[np.ndarray, " n"]
    """The cluster of each token."""

    @property
    def headline(self) -> str:
        n_layers, n_tokens, _ = self.coordinates.shape
        return f"{self.kind} of {n_tokens} tokens at {n_layers} layers"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per layer and token: its cluster, from 1 on, and its coordinates."""
        n_layers, n_tokens, n_axes = self.coordinates.shape
        frame = data_frame(self.coordinates.reshape(-1, n_axes), columns=list(self.axes))
        frame.insert(0, "layer", [layer for layer in range(n_layers) for _ in range(n_tokens)])
        frame.insert(1, "token", list(range(n_tokens)) * n_layers)
        frame.insert(2, "cluster", (self.labels + 1).tolist() * n_layers)
        return frame


@dataclass(frozen=True, kw_only=True, eq=False)
class Memberships(Result):
    """φ within one subspace between tokens, and one of the layers."""

    subspace: int
    """The number of the subspace, from 1 on."""
    layer: int
    patterns: Float[np.ndarray, "layer query key"]
    labels: Integer[np.ndarray, " key"]
    """The clusters of the tokens that these are of."""

    @property
    def headline(self) -> str:
        return f"memberships of {len(self.labels)} tokens in subspace {self.subspace}, layer {self.layer}"

    def to_frame(self) -> pd.DataFrame:
        """Return the memberships of the layer: one row per query, one column per key."""
        names = [f"cluster {label + 1}, token {place}" for place, label in enumerate(self.labels)]
        frame = data_frame(self.patterns[self.layer], columns=names)
        frame.insert(0, "query", names)
        return frame


def token_points(unrolling: Unrolling, kind: str = "lengths") -> TokenPoints:
    """Return tokens as points: their `"lengths"` within the first subspaces, coordinates along the first `"directions"`
    of these, or `"angles"` to their own subspace and the nearest other one, in degrees.

    Lengths and directions are divided by the layer's root mean square token length. Raises `ValueError` for another
    kind.
    """
    coordinates, axes, ranges = PICTURES[require_choice("kind", kind, PICTURES)](unrolling)
    labels = unrolling.mixture.labels.numpy()
    return TokenPoints(kind=kind, coordinates=coordinates, axes=axes, ranges=ranges, labels=labels)


def memberships_at(unrolling: Unrolling, subspace: int = 1, layer: int = 0, *, most: int = 96) -> Memberships:
    """Return φ within a subspace (from 1 on) of at most about `most` tokens, as many of each cluster, in their order.

    Raises `ValueError` if the subspace or the layer does not exist.
    """
    n_clusters, n_layers = len(unrolling.mixture.bases), len(unrolling.tokens)
    require_whole("subspace", subspace, 1, n_clusters)
    require_whole("layer", layer, 0, n_layers - 1)
    labels = unrolling.mixture.labels.numpy()
    members = max(most // n_clusters, 1)
    tokens = np.concatenate([np.flatnonzero(labels == cluster)[:members] for cluster in range(n_clusters)])
    patterns = unrolling.memberships(subspace - 1).numpy()[:, tokens[:, None], tokens]
    return Memberships(subspace=subspace, layer=layer, patterns=patterns, labels=labels[tokens])


_Picture = tuple[np.ndarray, tuple[str, ...], tuple[tuple[float, float], ...]]


def _scale(unrolling: Unrolling) -> np.ndarray:
    """The root mean square length of a layer's tokens, `[layer, 1, 1]`."""
    return np.asarray(np.sqrt(unrolling.tokens.pow(2).sum(-1).mean(1).numpy())[:, None, None])


def _axes(unrolling: Unrolling) -> int:
    return min(len(unrolling.mixture.bases), 3)


def _lengths(unrolling: Unrolling) -> _Picture:
    n_axes = _axes(unrolling)
    lengths = unrolling.lengths[..., :n_axes].numpy() / _scale(unrolling)
    axes = tuple(f"in subspace {axis + 1}" for axis in range(n_axes))
    return lengths, axes, ((-0.02, 1.05 * float(lengths.max())),) * n_axes


def _directions(unrolling: Unrolling) -> _Picture:
    n_axes = _axes(unrolling)
    firsts = unrolling.mixture.bases[:n_axes, :, 0]
    coordinates = (unrolling.tokens @ firsts.T).numpy() / _scale(unrolling)
    # A few tokens of one layer may lie far out: all but they fill the picture.
    reach = 1.3 * float(np.quantile(np.abs(coordinates), 0.995))
    axes = tuple(f"along U{axis + 1}".translate(_SUBSCRIPTS) for axis in range(n_axes))
    return coordinates, axes, ((-reach, reach),) * n_axes


def _angles(unrolling: Unrolling) -> _Picture:
    angles, labels = unrolling.angles.numpy(), unrolling.mixture.labels.numpy()
    own = np.arange(angles.shape[2]) == labels[:, None]
    nearest = np.where(own, np.inf, angles).min(-1)
    axes = ("angle to its own subspace (°)", "angle to the nearest other (°)")
    return np.stack([angles[:, own], nearest], axis=-1), axes, ((-2.0, 92.0),) * 2


#: The coordinates that tokens are drawn by.
PICTURES = {"lengths": _lengths, "directions": _directions, "angles": _angles}
