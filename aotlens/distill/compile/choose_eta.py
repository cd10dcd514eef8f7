"""η for each ReLU layer, from the tolerance and the proven bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.distill.compile.bounds import Bound, bound_error
from aotlens.distill.compile.ffn import Activation, FeedForward
from aotlens.distill.compile.layers import Construction, unit_layers

_LARGEST = 1e300
_ATTEMPTS = 6


def choose_etas(
    ffn: FeedForward,
    construction: Construction,
    *,
    bound: float | int,
    tolerance: float | int,
    v: Float[Tensor, " d_model"],
) -> tuple[float, ...]:
    """Choose η_ℓ = (tolerance − rounding) / (number of ReLU layers · 0.2785 · C_ℓ); 1 for SiLU.

    C_ℓ is how much an error of one unit everywhere in layer ℓ can become at the output, through |W_{ℓ+1}| … |W_{L+1}|
    and the slopes. Each ReLU layer has an equal share of what rounding leaves of the tolerance, and no η is larger than
    its layer's largest pre-activation, from where on a unit is little but x/2.

    Raises `ValueError` where rounding leaves nothing, with the tolerance that can be proven.
    """
    gains = [_gain(ffn, construction, layer, bound, v) for layer in range(ffn.depth)]
    reaches = _reaches(ffn, bound)
    n_relu = max(ffn.activations.count("relu"), 1)

    def etas(budget: float, most: float) -> list[float]:
        parts = zip(ffn.activations, gains, reaches, strict=True)
        return [_eta(budget / n_relu, most * reach, activation, gain) for activation, gain, reach in parts]

    def proven(chosen: Sequence[float], **what: Any) -> Bound:
        return bound_error(ffn, unit_layers(ffn, chosen, construction), bound=bound, v=v, **what)

    tolerance = float(tolerance)
    without_relu = proven(etas(tolerance, 1.0), relu_gap=0.0)
    if not without_relu.largest <= _LARGEST:
        raise ValueError(
            f"bound={bound}, tolerance={tolerance}: numbers above {_LARGEST:g} would occur, which float64 cannot hold."
        )
    # Rounding grows with η, as the units' results do, so what it takes at most at one η it takes at most at a smaller.
    for exponent in range(_ATTEMPTS):
        most = 1e-3**exponent
        largest = etas(tolerance, most)
        taken = float((proven(largest).by_output - proven(largest, rounding=False).by_output).max()) * (1 + 1e-6)
        if taken < tolerance:
            return tuple(etas(tolerance - taken, most))
    least = without_relu.total
    raise ValueError(
        f"tolerance={tolerance:g} is below what float64 can be proven to reach here: on [-{bound:g}, {bound:g}] "
        f"the rounding of the compiled network and of the FFN may add {least:.2g}. Give at least "
        f"{1.02 * least:.3g}, or a smaller bound."
    )


def _eta(share: float, most: float, activation: Activation, gain: float) -> float:
    if activation != "relu":
        return 1.0
    within_share = share * (1 - 1e-6) / gain if gain > 0 else math.inf
    chosen = min(within_share, most if most > 0 else math.inf)
    return chosen if chosen < math.inf else 1.0


def _reaches(ffn: FeedForward, bound: float | int) -> list[float]:
    """Bound the size of the pre-activations of each hidden layer."""
    size, reaches = torch.full((ffn.d_in,), float(bound), dtype=torch.float64), []
    for weight, bias in zip(ffn.weights[:-1], ffn.biases[:-1], strict=True):
        size = size @ weight.abs() + bias.abs()
        reaches.append(float(size.max()))
    return reaches


def _gain(ffn: FeedForward, construction: Construction, layer: int, bound: float | int, v: Tensor) -> float:
    """0.2785 · C: the largest error at the output for η = 1 in this layer and no error of any other."""
    if ffn.activations[layer] != "relu":
        return 0.0
    only = [1.0 if i == layer else 0.0 for i in range(ffn.depth)]
    layers = unit_layers(ffn, only, construction)
    return float(bound_error(ffn, layers, bound=bound, v=v, rounding=False).compiled.max())
