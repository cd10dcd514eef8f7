"""One mixture, followed layer by layer: where its tokens lie, what attends to what, and whether the rate holds.

`unroll_mixture` is one run of what `denoising_rates` repeats over noises and seeds, and keeps its tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_whole
from aotlens.denoise.subspaces import Mixture, OverflowedTokens, memberships, snr, unroll
from aotlens.results import Result

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
    """Whether fewer layers are here than were asked for, since the tokens left the numbers' range."""

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

        Memory: layers · n² numbers. Raises `ValueError` for a subspace that there is not.
        """
        n_clusters = len(self.mixture.bases)
        if not 0 <= cluster < n_clusters:
            raise ValueError(f"cluster={cluster}: expected 0 to {n_clusters - 1}.")
        basis = self.mixture.bases[cluster : cluster + 1]
        return torch.cat([memberships(layer, basis, self.phi, self.threshold) for layer in self.tokens])

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each layer and cluster: its SNR, and the ratio to the layer before."""
        import pandas as pd

        n_layers, n_clusters = self.snr.shape
        ratios = torch.cat([self.snr.new_full((1, n_clusters), math.nan), self.ratios])
        return pd.DataFrame(
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
    if n_layers < 1:
        raise ValueError(f"n_layers={n_layers}: expected at least 1.")
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
