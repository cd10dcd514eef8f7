"""Networks to compile, drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import jaxtyping
import torch
from hypothesis import strategies as st
from torch import Tensor, nn


@st.composite
def networks(draw: st.DrawFn, activations: tuple[type[nn.Module], ...] = (nn.ReLU, nn.SiLU)) -> nn.Sequential:
    """Depth 1–4, widths 1–6 (W < D, W > D, D = 1, D' > W), with and without biases, and with weights that are 0."""
    widths = draw(st.lists(st.integers(1, 6), min_size=3, max_size=6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    scale = draw(st.sampled_from([1.0, 1.0, 30.0, 0.01]))
    modules: list[nn.Module] = []
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        linear = nn.Linear(inputs, outputs, bias=draw(st.booleans())).double().requires_grad_(False)
        linear.weight.copy_(torch.randn(outputs, inputs, generator=generator, dtype=torch.float64) * scale)
        if draw(st.integers(0, 3)) == 0:
            linear.weight[torch.rand(outputs, inputs, generator=generator) < 0.5] = 0.0
        if linear.bias is not None:
            linear.bias.copy_(torch.randn(outputs, generator=generator, dtype=torch.float64))
        modules.append(linear)
        if i < len(widths) - 2:
            modules.append(draw(st.sampled_from(activations))())
    return nn.Sequential(*modules)


def mlp(*widths: int, activation: type[nn.Module] = nn.ReLU, bias: bool = True) -> nn.Sequential:
    """A network of these widths in float64, with torch's own initial weights."""
    modules: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        modules += [nn.Linear(inputs, outputs, bias=bias), activation()]
    return nn.Sequential(*modules[:-1]).double().requires_grad_(False)


def uniform(n: int, d: int, bound: float, seed: int = 0) -> Tensor:
    """n points of [-bound, bound]^d."""
    return (2 * torch.rand(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1) * bound


@contextmanager
def unchecked_shapes() -> Iterator[None]:
    """As users call it: the suite's own check of annotated shapes would refuse before the library's does."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
