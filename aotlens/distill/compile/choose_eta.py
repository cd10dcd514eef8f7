"""η for each ReLU layer, from the tolerance and the proven bound."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from aotlens.distill.compile.bounds import RELU_GAP, Bound, bound_error
from aotlens.distill.compile.ffn import FeedForward
from aotlens.distill.compile.layers import Construction, unit_layers

_LARGEST = 1e300


def choose_etas(
    ffn: FeedForward,
    construction: Construction,
    *,
    bound: float | int,
    tolerance: float | int,
    v: Float[Tensor, " d_model"],
) -> tuple[float, ...]:
    """η_ℓ = (tolerance − rounding) / (number of ReLU layers · 0.2785 · C_ℓ); 1 for SiLU.

    C_ℓ is how much an error of one unit everywhere in layer ℓ can become at the output, through |W_{ℓ+1}| … |W_{L+1}|
    and the slopes. Each ReLU layer has an equal share of what rounding leaves of the tolerance; where C_ℓ = 0, η = 1.

    Raises `ValueError` where rounding leaves nothing, with the tolerance that can be proven.
    """
    gains = [_gain(ffn, construction, layer, bound, v) for layer in range(ffn.depth)]
    n_relu = ffn.activations.count("relu")

    def etas(budget: float) -> list[float]:
        share = budget / max(n_relu, 1) * (1 - 1e-6)
        return [
            1.0 if activation != "relu" or gain == 0 else share / gain
            for activation, gain in zip(ffn.activations, gains, strict=True)
        ]

    def proven(chosen: Sequence[float], relu_gap: float = RELU_GAP) -> Bound:
        layers = unit_layers(ffn, chosen, construction)
        return bound_error(ffn, layers, bound=bound, v=v, relu_gap=relu_gap)

    # The rounding bound grows a little with η, as the units' results do: taken at the largest η that can come out.
    everything = etas(float(tolerance))
    exact = bound_error(ffn, unit_layers(ffn, everything, construction), bound=bound, v=v, rounding=False)
    largest = proven(everything)
    rounding = largest.total - exact.total
    least = proven([min(eta, 1e-9 * eta + 1e-200) for eta in everything], relu_gap=0.0).total
    if not math.isfinite(rounding) or proven(everything, relu_gap=0.0).largest > _LARGEST:
        raise ValueError(
            f"bound={bound}, tolerance={tolerance}: numbers above {_LARGEST:g} would occur, which float64 cannot hold."
        )
    if rounding * (1 + 1e-6) >= tolerance:
        raise ValueError(
            f"tolerance={tolerance:g} is below what float64 can be proven to reach here: on [-{bound:g}, {bound:g}] "
            f"the rounding of the compiled network and of the FFN may add {least:.2g}. Give at least "
            f"{1.02 * least:.3g}, or a smaller bound."
        )
    chosen = etas(float(tolerance) - rounding * (1 + 1e-6))
    return tuple(chosen)


def _gain(ffn: FeedForward, construction: Construction, layer: int, bound: float | int, v: Tensor) -> float:
    """0.2785 · C: the largest error at the output for η = 1 in this layer and no error of any other."""
    if ffn.activations[layer] != "relu":
        return 0.0
    only = [1.0 if i == layer else 0.0 for i in range(ffn.depth)]
    layers = unit_layers(ffn, only, construction)
    return float(bound_error(ffn, layers, bound=bound, v=v, rounding=False).compiled.max())
