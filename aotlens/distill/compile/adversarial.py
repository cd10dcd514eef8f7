"""Points at which a compiled network is likely to be farthest from its FFN."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_seed
from aotlens.distill.compile.ffn import FeedForward

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
    if n < 1:
        raise ValueError(f"n={n}: expected at least one point.")
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
    chosen = crosses & (crosses.cumsum(0) <= each)
    segment, unit = chosen.nonzero(as_tuple=True)
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
