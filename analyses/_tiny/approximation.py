"""Can attention learn to be a feed-forward network? (*nonlinearity*, Appendix D.1, Figures 4 to 6.)

Networks of L attention layers on sequences of 8 random vectors are trained, in mean squared error, to give at each
token what a random FFN gives there. Two kinds:

    S    standard attention: every token sees all eight
    F    a fixed vector is appended, and a token sees only itself and that vector (Theorem 4.1)

What the paper leaves open, and what is taken here: weights start as `torch.nn.Linear`'s, the FFN's too; the fixed
vector is drawn from a standard normal, as tokens are, and both kinds work in the stream's own 16 dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn

from analyses._tiny.layers import AuxiliaryAttention, SelfAttention, generators_of, linear

Kind = Literal["S", "F"]
_DATA, _WEIGHTS, _ORDER = 1, 2, 3


@dataclass(frozen=True, kw_only=True, eq=False)
class Approximation:
    """Errors of every run on sequences that it was not trained on, after each epoch."""

    kind: str
    """The kind of network, `"S"` or `"F"`."""
    heads: Int64[np.ndarray, " run"]
    layers: Int64[np.ndarray, " run"]
    seeds: Int64[np.ndarray, " run"]
    test_loss: Float64[np.ndarray, "run epoch"]
    """The mean squared error; the first is before training."""
    train_loss: Float64[np.ndarray, " run"]
    """The loss after the last epoch."""
    constant_loss: Float64[np.ndarray, " run"]
    """The test error of the best constant, the mean of the training outputs."""

    @property
    def relative(self) -> Float64[np.ndarray, "run epoch"]:
        """Return test error ÷ the best constant's: 1 has learned nothing of the FFN but its mean."""
        return self.test_loss / self.constant_loss[:, None]


class _Approximators(nn.Module):
    """All runs of one kind; a run with fewer layers has layers without heads, which change nothing."""

    def __init__(self, kind: Kind, d: int, heads: Sequence[int], layers: Sequence[int], seeds: Sequence[int]) -> None:
        super().__init__()
        generators = generators_of(seeds, _WEIGHTS)
        auxiliary = torch.stack([torch.randn(d, generator=generator) for generator in generators])
        self.register_buffer("auxiliary", auxiliary)
        layer = SelfAttention if kind == "S" else AuxiliaryAttention
        self.blocks = nn.ModuleList(
            layer(d, [n if index < depth else 0 for n, depth in zip(heads, layers, strict=True)], generators)
            for index in range(max(layers))
        )
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        auxiliary = self.auxiliary
        for block in self.blocks:
            if self.kind == "S":
                x = block(x)
            else:
                x, auxiliary = block(x, auxiliary)
        return x


def approximate_ffn(
    kind: Kind,
    heads: Sequence[int],
    layers: Sequence[int],
    seeds: Sequence[int],
    *,
    batch_size: int = 16,
    epochs: int = 100,
    d: int = 16,
    n_pos: int = 8,
    ffn_width: int = 75,
    ffn_depth: int = 3,
    ffn_gain: float | int = 1.0,
    n_train: int = 75,
    n_test: int = 25,
    learning_rate: float = 1e-3,
) -> Approximation:
    """Train one network for each of `zip(heads, layers, seeds)`, all at once, with Adam; the paper's sizes by default.

    `ffn_gain` multiplies the FFN's weights; √6 makes its outputs about as large as its inputs. A seed decides the FFN,
    the sequences, their order and the initial weights. Every run is as if it were alone.
    Cost: time and memory grow with runs × the largest number of heads × the largest number of layers.
    """
    x, y = _data(seeds, n_train + n_test, n_pos, d, ffn_width, ffn_depth, ffn_gain)
    (x_train, x_test), (y_train, y_test) = (values.split([n_train, n_test], dim=1) for values in (x, y))
    network = _Approximators(kind, d, heads, layers, seeds)
    optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate)
    orders = generators_of(seeds, _ORDER)
    runs = torch.arange(len(seeds))[:, None]
    curve = [_errors(network, x_test, y_test)]
    for _ in range(epochs):
        order = torch.stack([torch.randperm(n_train, generator=generator) for generator in orders])
        for start in range(0, n_train, batch_size):
            rows = order[:, start : start + batch_size]
            loss = (network(x_train[runs, rows]) - y_train[runs, rows]).pow(2).mean((1, 2, 3)).sum()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
        curve.append(_errors(network, x_test, y_test))
    constant = (y_test - y_train.mean((1, 2), keepdim=True)).pow(2).mean((1, 2, 3))
    return Approximation(
        kind=kind,
        heads=np.array(heads, dtype=np.int64),
        layers=np.array(layers, dtype=np.int64),
        seeds=np.array(seeds, dtype=np.int64),
        test_loss=np.stack(curve, 1),
        train_loss=_errors(network, x_train, y_train),
        constant_loss=constant.double().numpy(),
    )


@torch.no_grad()
def _errors(network: nn.Module, x: Tensor, y: Tensor) -> np.ndarray:
    """Return the mean squared error of every run. Raises `ValueError` if one is not finite."""
    errors = (network(x) - y).pow(2).mean((1, 2, 3)).double().numpy()
    if not np.isfinite(errors).all():
        raise ValueError(f"a run's error is not finite ({errors}); lower learning_rate.")
    return errors


def _data(
    seeds: Sequence[int], n: int, n_pos: int, d: int, width: int, depth: int, gain: float | int
) -> tuple[Tensor, Tensor]:
    """Draw standard normal tokens and what each run's random FFN makes of them, `[run, n, pos, d]` both."""
    generators = generators_of(seeds, _DATA)
    x = torch.stack([torch.randn(n, n_pos, d, generator=generator) for generator in generators])
    hidden = x.flatten(1, 2)
    for index in range(depth + 1):
        weight, bias = linear(d if index == 0 else width, d if index == depth else width, generators)
        hidden = torch.baddbmm(bias[:, None], hidden, gain * weight)
        hidden = hidden if index == depth else hidden.relu()
    return x, hidden.unflatten(1, (n, n_pos))
