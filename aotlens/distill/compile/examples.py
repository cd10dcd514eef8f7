"""Small networks to compile: functions of one number, their sums over coordinates, and random networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from aotlens.conventions import require_between, require_seed, require_whole
from aotlens.distill.compile.ffn import Activation, FeedForward

Target = Literal["square", "sine"]
#: Slopes that differ by less, as a share of the largest, are one.
_ON_A_LINE = 1e-14
#: The functions that `fit` fits: x² and sin(πx).
TARGETS: dict[Target, Callable[[Tensor], Tensor]] = {"square": torch.square, "sine": lambda x: torch.sin(torch.pi * x)}


def interpolate(x: Sequence[float | int], y: Sequence[float | int]) -> FeedForward:
    """Return the ReLU network of one hidden layer that joins the points (x_i, y_i) by straight lines, flat outside
    them.

        f(t) = y_0 + Σ_i (s_i − s_{i−1}) ReLU(t − x_i),   s_i = (y_{i+1} − y_i)/(x_{i+1} − x_i),   0 beyond both ends.

    A unit a point; points at which the slope does not change (by more than rounding) need none. The points may come in
    any order. Raises `ValueError` for fewer than two, for two at the same x, and for numbers that are not finite.
    """
    knots, to = torch.tensor(x, dtype=torch.float64), torch.tensor(y, dtype=torch.float64)
    if knots.ndim != 1 or knots.shape != to.shape or len(knots) < 2:
        raise ValueError(f"interpolate: expected two points or more, got {len(x)} x and {len(y)} y.")
    if not (knots.isfinite().all() and to.isfinite().all()):
        raise ValueError("interpolate: expected finite x and y.")
    order = knots.argsort()
    knots, to = knots[order], to[order]
    if (knots.diff() == 0).any():
        twice = float(knots[:-1][knots.diff() == 0][0])
        raise ValueError(f"interpolate: two points have x = {twice:g}; a function has one value there. Move one.")
    slopes = torch.cat([knots.new_zeros(1), to.diff() / knots.diff(), knots.new_zeros(1)])
    if not slopes.isfinite().all():
        raise ValueError("interpolate: two points are so close that the slope between them is no finite number.")
    turns = slopes.diff()
    turns[turns.abs() <= _ON_A_LINE * slopes.abs().max()] = 0.0
    is_kink = turns != 0 if turns.any() else torch.arange(len(knots)) == 0
    n = int(is_kink.sum())
    return _network([(knots.new_ones(1, n), -knots[is_kink]), (turns[is_kink][:, None], to[:1])])


def fit(target: Target, *, width: int, bound: float | int) -> FeedForward:
    """Return `TARGETS[target]`, interpolated at `width` + 1 equally spaced points of [-bound, bound]."""
    if width < 1 or not bound > 0:
        raise ValueError(f"fit: expected width ≥ 1 and bound > 0, got {width} and {bound}.")
    x = torch.linspace(-bound, bound, width + 1, dtype=torch.float64)
    y = TARGETS[target](x)
    return interpolate(x.tolist(), torch.where(y.abs() < 1e-15, 0.0, y).tolist())  # sin(π) is 1.2e-16 in float64


def absolute_value() -> FeedForward:
    """Return the network |x| = ReLU(x) + ReLU(−x)."""
    return _network([([[1.0, -1.0]], None), ([[1.0], [1.0]], None)])


def ramp(width: float | int = 0.2) -> FeedForward:
    """Return the network that is 0 up to −width/2, 1 from width/2 on, straight between: a step as steep as
    one likes."""
    require_between("width", width, above=0)
    return interpolate([-width / 2, width / 2], [0.0, 1.0])


def sawtooth(depth: int) -> FeedForward:
    """Return the network of 2^(depth − 1) teeth on [−1, 1] with three units a layer; 0 outside.

    The tent 2ReLU(u) − 4ReLU(u − 1/2) + 2ReLU(u − 1) composed with itself, u = (x + 1)/2. One hidden layer would need
    a unit a kink (Telgarsky, *Benefits of depth in neural networks*, 2016).
    """
    require_whole("depth", depth, 1)
    starts, tent = torch.tensor([0.0, -0.5, -1.0]), torch.tensor([[2.0], [-4.0], [2.0]])
    first = (torch.full((1, 3), 0.5), starts + 0.5)
    between = (tent.expand(3, 3), starts)
    return _network([first, *[between] * (depth - 1), (tent, None)])


def random_network(d_in: int, *, width: int, depth: int, seed: int = 0) -> FeedForward:
    """Draw a ReLU network of one output; normal weights of variance 2/inputs (the last: 1/inputs), normal biases of
    variance 1/4."""
    for name, size in (("d_in", d_in), ("width", width), ("depth", depth)):
        require_whole(name, size, 1)
    generator = torch.Generator().manual_seed(require_seed(seed))
    sizes = [d_in, *[width] * depth, 1]
    layers = []
    for layer, (before, after) in enumerate(pairwise(sizes)):
        gain = (1.0 if layer == depth else 2.0) / before
        weight = torch.randn(before, after, generator=generator, dtype=torch.float64) * gain**0.5
        layers.append((weight, torch.randn(after, generator=generator, dtype=torch.float64) / 2))
    return _network(layers)


def on_each_coordinate(ffn: FeedForward, d_in: int) -> FeedForward:
    """Return the network f(x_1) + … + f(x_D) for an f of one number: D copies side by side."""
    if ffn.d_in != 1 or d_in < 1:
        raise ValueError(f"on_each_coordinate: expected a network of one number and D ≥ 1, got {ffn.d_in} and {d_in}.")
    weights = [torch.block_diag(*[weight] * d_in) for weight in ffn.weights[:-1]]
    biases = [bias.repeat(d_in) for bias in ffn.biases[:-1]]
    return FeedForward(
        weights=(*weights, ffn.weights[-1].repeat(d_in, 1)),
        biases=(*biases, ffn.biases[-1] * d_in),
        activations=ffn.activations,
    )


def with_activation(ffn: FeedForward, activation: Activation) -> FeedForward:
    """Return the same weights with another activation: another function."""
    return replace(ffn, activations=(activation,) * ffn.depth)


def _network(layers: Sequence[tuple[Tensor | list[list[float]], Tensor | None]]) -> FeedForward:
    weights = [torch.as_tensor(weight, dtype=torch.float64).clone() for weight, _ in layers]
    biases = [
        torch.zeros(weight.shape[1], dtype=torch.float64) if bias is None else bias.to(torch.float64, copy=True)
        for weight, (_, bias) in zip(weights, layers, strict=True)
    ]
    relu: Activation = "relu"
    activations = (relu,) * (len(weights) - 1)
    return FeedForward(weights=tuple(weights), biases=tuple(biases), activations=activations)
