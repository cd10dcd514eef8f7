"""The error of a compiled network against its FFN: a bound over the whole cube, rounding included, and η from it.

**Exact arithmetic.** For every t, 0 ≤ ReLU(t) − η SiLU(t/η) = |t| sigmoid(−|t|/η) ≤ W(1/e)·η < 0.2785·η (Lambert's W;
Lemma E.2, whose limit σ_L(ηx)/x is not the one that holds). ReLU has slope at most 1, SiLU at most 1.0999, so with
E_ℓ[j] a bound on the error of coordinate j of the stream after layer ℓ, componentwise and for every x,

    E_{ℓ+1} = (λ ∘ (E_ℓ |R|) + α) |B| + E_ℓ on coordinates that are not cleared,    E_0 = 0,

R what the units read, B what they write, λ the slopes, α = 0.2785·η for units that stand for ReLU and 0 for the others.
The cancellation of the skip connection is an identity, whatever the error of what it cancels.

**Rounding.** u = 2⁻⁵³, γ(k) = k·u/(1 − k·u). A sum of k products, in any order, fused or not, is within γ(k) Σ|a||b|
of its value (Higham, *Accuracy and Stability*, §3.1); adding exact zeros rounds nothing. With M_ℓ a bound on the
stream's computed coordinates (those of the exact network, widened by E_ℓ) and T = M_ℓ |R|, a unit's value is off by at
most γ(d)T and its score by γ(d + …)T/η. A score off by δ changes a unit's result by at most η|δ|, since
|s|·|sigmoid(s + δ) − sigmoid(s)| ≤ |δ| for all s, δ: if s + δ has the other sign, |s| ≤ |δ|; if not, the chord of a
function that is concave there is no steeper than that from 0 to s, which is at most 1/(2|s|). So rounding does not grow
as η → 0. exp is taken to be within 4 units in the last place (libraries state 1 to 2), and the softmax around it adds
a few u, all within the 64 u below. The auxiliary token's values are 0 up to rounding if v₁: ≠ 0; what that adds, and
how the token drifts by it, is followed too. torch's own evaluation of the FFN rounds as well, and is bounded in the
same way: the bound is on the difference of two float64 computations.

All terms are ≥ 0, so computing the bound in float64 loses some 1e-12 of it; each layer is enlarged by 1e-9 for that.
Numbers below 2⁻¹⁰²² may be flushed to 0; 1e-290 is added for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_seed, require_whole
from aotlens.distill.compile.ffn import Activation, FeedForward
from aotlens.distill.compile.layers import Construction, UnitLayer, unit_layers

#: sup over t of ReLU(t) − SiLU(t) = W(1/e), rounded up.
RELU_GAP = 0.27846454276107380 * (1 + 1e-12)
#: sup of SiLU' (at 2.3994), rounded up.
SILU_SLOPE = 1.09984
_U = 2.0**-53
_SLACK = 64
_TINY = 1e-290
_ENLARGE = 1 + 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class Bound:
    """Bounds over [-bound, bound]^D on each output, `[d_out]`, and on what the model computes on the way there."""

    compiled: Float[Tensor, " output"]
    """|compiled network in float64 − f| in exact arithmetic."""
    reference: Float[Tensor, " output"]
    """|f in float64 − f|."""
    largest: float
    """No intermediate number is larger: above 1e300 nothing holds."""

    @property
    def by_output(self) -> Float[Tensor, " output"]:
        """|compiled network in float64 − f in float64|."""
        return (self.compiled + self.reference) * _ENLARGE

    @property
    def total(self) -> float:
        """The largest of these."""
        return float(self.by_output.max())


def bound_error(
    ffn: FeedForward,
    layers: Sequence[UnitLayer],
    *,
    bound: float | int,
    v: Float[Tensor, " d_model"],
    relu_gap: float = RELU_GAP,
    rounding: bool = True,
) -> Bound:
    """Compute the recursion above for `layers` and the auxiliary token `v`.

    `rounding=False` leaves exact arithmetic, `relu_gap=0.0` leaves rounding.
    """
    u = _U if rounding else 0.0
    tiny = _TINY if rounding else 0.0
    n = layers[0].n_coordinates
    v_size, drift = v[:-1].abs(), torch.zeros(n, dtype=torch.float64)
    has_leak = bool(v_size.any())
    error, size = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    size[: ffn.d_in], size[-1] = bound, 1.0
    largest = float(bound)
    for layer in layers:
        read, write = layer.read.abs(), layer.write.abs()
        computed = size + error
        reach = computed @ read
        leak = _gamma(u, 3 * n + _SLACK) * (v_size @ read) + drift @ read + tiny * has_leak
        flushed = tiny * (1 + reach) + tiny * 1e-15 * layer.eta * (computed.sum() + n)  # values; weights and scores
        local = _gamma(u, 2 * n + _SLACK) * reach + leak + flushed
        slope = torch.where(layer.relu, 1.0, SILU_SLOPE)
        own = torch.where(layer.relu, relu_gap * layer.eta, 8 * u)  # 8u: SiLU(s) is 1 only to rounding
        result = slope * (error @ read) + own

        # The contribution of the cancellation and the last bias: their rounding, and the size of what is summed.
        cleared = layer.cleared.to(torch.float64)
        bias = layer.bias.abs()
        pairs = layer.construction == "paper"
        times = 2 if pairs else 1
        leak_at = _gamma(u, 3 * n + _SLACK) * v_size + drift + tiny * has_leak
        visible = 1.0 if pairs else 0.0  # the other heads do not see the auxiliary token
        other = cleared * times * (_gamma(u, 2 * n + _SLACK) * computed + visible * leak_at)
        other += _gamma(u, _SLACK) * bias
        summed = (reach + local) @ write + times * cleared * computed + bias + other
        touched = (cleared > 0) | (write.sum(0) > 0) | (bias > 0)
        sum_rounding = _gamma(u, read.shape[1] + 16) * (summed + computed) + tiny
        error = result @ write + (1 - cleared) * error
        error += torch.where(touched, local @ write + other + sum_rounding, 0.0)
        error *= _ENLARGE

        written = leak @ write + times * cleared * leak_at + leak_at[-1] * bias
        moved = written + _gamma(u, read.shape[1] + 16) * (written + v_size + drift)
        drift = torch.where(touched & has_leak, (drift + moved) * _ENLARGE, drift)

        constant = size[-1].clone()
        size = ((size @ read) @ write + (1 - cleared) * size + bias) * _ENLARGE
        size[-1] = constant  # 1 at each layer that has it; the last one of the paper's construction clears it
        scores = float((reach / layer.eta).max())
        largest = max(largest, float((size + error).max()), float(summed.max()), scores)
    return Bound(
        compiled=error[: ffn.d_out],
        reference=_reference(ffn, bound, u, tiny),
        largest=max(largest, float(v_size.max()), float(drift.max())),
    )


def _reference(ffn: FeedForward, bound: float | int, u: float, tiny: float) -> Tensor:
    """|f in float64 − f|: the same recursion without attention."""
    size = torch.full((ffn.d_in,), float(bound), dtype=torch.float64)
    error = torch.zeros_like(size)
    for i, (weight, bias) in enumerate(zip(ffn.weights, ffn.biases, strict=True)):
        weight, bias = weight.abs(), bias.abs()
        reach = (size + error) @ weight + bias
        error = error @ weight + _gamma(u, len(weight) + 4) * reach + tiny
        if i < ffn.depth:
            slope = 1.0 if ffn.activations[i] == "relu" else SILU_SLOPE
            error = slope * error + (0.0 if ffn.activations[i] == "relu" else _gamma(u, 16) * reach + tiny)
        error *= _ENLARGE
        size = (size @ weight + bias) * _ENLARGE
    return error


def _gamma(u: float, k: int) -> float:
    return k * u / (1 - k * u)


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

    def proven(etas: Sequence[float], **what: Any) -> Bound:
        return bound_error(ffn, unit_layers(ffn, etas, construction), bound=bound, v=v, **what)

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
    eta = min(within_share, most if most > 0 else math.inf)
    return eta if eta < math.inf else 1.0


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


#: |t|/η at which ReLU(t) − η SiLU(t/η) is largest: 1 + W(1/e).
WORST = 1.2784645427610738
_Error: TypeAlias = Callable[[Tensor], Tensor]
_CORNERS = 64
_BISECTIONS = 60


def adversarial_points(
    ffn: FeedForward, etas: Sequence[float], *, bound: float | int, n: int = 2000, seed: int = 0
) -> Float[Tensor, "point d_in"]:
    """Choose about `n` points of [-bound, bound]^D: random ones, corners, 0, and kinks.

    At a kink some unit's pre-activation, in any layer, is 0 or ±1.2785·η, where a unit that stands for ReLU errs most.
    Kinks are found by bisection on segments between random points, along which the pre-activation changes sides; and,
    in the first layer, by least squares for all units at once.
    """
    require_whole("n", n, 1)
    generator = torch.Generator().manual_seed(require_seed(seed))
    d = ffn.d_in

    def random(count: int) -> Tensor:
        return (2 * torch.rand(count, d, generator=generator, dtype=torch.float64) - 1) * bound

    inputs = [torch.zeros(1, d, dtype=torch.float64), random(max(n // 4, 1)), random(_CORNERS).sign() * bound]
    kinks = sum(3 * width for width in ffn.widths)
    each = max(1, (n // 2) // kinks)
    for layer, eta in enumerate(etas):
        for level in (-WORST * eta, 0.0, WORST * eta):
            inputs.append(_crossings(ffn, layer, level, random(16 * each), random(16 * each), each))
            if layer == 0:
                inputs.append(_all_at_once(ffn, level, random(each)).clamp(-bound, bound))
    return torch.cat(inputs)


def _crossings(ffn: FeedForward, layer: int, level: float, a: Tensor, b: Tensor, each: int) -> Tensor:
    """Find points on segments from a to b where units of `layer` cross `level`: `each` for every unit with so many."""
    above_a, above_b = (ffn.pre_activations(x)[layer] > level for x in (a, b))
    crosses = above_a != above_b  # [segment, unit]
    segment, unit = (crosses & (crosses.cumsum(0) <= each)).nonzero(as_tuple=True)
    if not len(segment):
        return a[:0]
    low, high = a[segment], b[segment]
    start = above_a[segment, unit]
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        same = (ffn.pre_activations(middle)[layer].gather(1, unit[:, None])[:, 0] > level) == start
        low, high = torch.where(same[:, None], middle, low), torch.where(same[:, None], high, middle)
    return low


def _all_at_once(ffn: FeedForward, level: float, near: Tensor) -> Tensor:
    """The points nearest to `near` at which all units of the first layer are as close to `level` as can be."""
    weight, bias = ffn.weights[0], ffn.biases[0]
    return near + (level - bias - near @ weight) @ torch.linalg.pinv(weight)


def climb(
    error: _Error, points: Float[Tensor, "point d_in"], *, bound: float | int, scale: float, seed: int = 0
) -> Float[Tensor, "worst d_in"]:
    """Return the worst of `points`, moved at random by ever less as long as that makes them worse."""
    generator = torch.Generator().manual_seed(require_seed(seed))
    values = error(points)
    best = points[values.argsort(descending=True)[:16]]
    for shrink in torch.logspace(0, -4, 12, dtype=torch.float64):
        moves = torch.randn(16, *best.shape, generator=generator, dtype=torch.float64) * scale * shrink
        tried = torch.cat([best[None], best + moves]).clamp(-bound, bound)  # [try, point, d_in]
        values = error(tried.flatten(0, 1)).view(tried.shape[:2])
        best = tried[values.argmax(0), torch.arange(len(best))]
    return best
