"""Networks that recall which token was hidden in each of n sequences (*nonlinearity*, Appendix D.2, Figures 7 to 9).

A vocabulary of C random vectors; n sequences of 8 different tokens, one of them, anywhere, replaced by the vector of
[MASK]; the network names the token that stood there, from its own output at that position. Only training error is asked
for: can the sequences be memorised? Five networks, with H heads of size 1 in each layer of attention:

    S          attention, then an FFN of H hidden units
    F          attention, then attention to itself and an appended fixed vector (Theorem 6.1)
    F+T        a learned pattern that is the same for every sequence (Proposition 5.2), then as F
    F+R        attention to itself and a fixed vector, a random pattern that stays as it is (Proposition 5.3), then as F
    F+R+noF    F+R without its first layer

No norms, no positions, no biases in attention. What the paper leaves open: how the answer is read. `"classes"`: C
logits, a linear map of the output, and cross-entropy, as masked language models are trained. `"number"`: the
token's number, as Definition 3.1 has it, scaled to mean 0 and variance 1 over the vocabulary, and squared error.

Since the second layer acts on each token alone, the first is worked out at the hidden position only: the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from analyses._tiny.layers import (
    AuxiliaryAttention,
    FeedForward,
    PatternAttention,
    SelfAttention,
    generators_of,
    linear,
)

MODELS = ("S", "F", "F+T", "F+R", "F+R+noF")
Readout = Literal["classes", "number"]
_DATA, _WEIGHTS, _ORDER = 4, 5, 6


@dataclass(frozen=True, kw_only=True, eq=False)
class Recall:
    """Training losses of one kind of network over epochs, a row a seed."""

    kind: str
    readout: str
    n_heads: int
    n_sequences: int
    seeds: tuple[int, ...]
    epoch_loss: Float64[np.ndarray, "seed epoch"]
    """Mean over the steps of each epoch: nats, or squared error relative to the numbers' variance."""
    loss: Float64[np.ndarray, " seed"]
    """The loss on all sequences, after the last epoch."""
    accuracy: Float64[np.ndarray, " seed"]
    """Share of hidden tokens named right after the last epoch (a number: to the nearest whole one)."""


class _RecallNetworks(nn.Module):
    """One network a seed, read at the hidden position."""

    auxiliary: Tensor

    def __init__(self, kind: str, d: int, n_pos: int, n_heads: int, n_out: int, seeds: Sequence[int]) -> None:
        super().__init__()
        generators = generators_of(seeds, _WEIGHTS)
        heads = [n_heads] * len(seeds)
        self.register_buffer("auxiliary", torch.stack([torch.randn(d, generator=g) for g in generators]))
        self.before = AuxiliaryAttention(d, heads, generators) if kind == "F+R" else None
        self.mix: nn.Module
        if kind in ("S", "F"):
            self.mix = SelfAttention(d, heads, generators)
        else:
            self.mix = PatternAttention(d, heads, n_pos, generators, learned=kind == "F+T")
        self.after: nn.Module
        self.after = FeedForward(d, n_heads, generators) if kind == "S" else AuxiliaryAttention(d, heads, generators)
        self.W_out, self.b_out = (nn.Parameter(w) for w in linear(d, n_out, generators))

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        """Return outputs `[run, batch, n_out]` of `x [run, batch, pos, d]` and hidden positions `[run, batch]`."""
        if self.before is not None:
            x, _ = self.before(x, self.auxiliary)
        hidden = self.mix(x, at)
        if isinstance(self.after, FeedForward):
            hidden = self.after(hidden)
        else:
            hidden, _ = self.after(hidden, self.auxiliary)
        return torch.baddbmm(self.b_out[:, None], hidden[:, :, 0], self.W_out)


def recall_data(
    seed: int, n: int, *, d_vocab: int = 2048, n_pos: int = 8, d: int = 16
) -> tuple[Float[Tensor, "n pos d"], Int64[Tensor, " n"], Int64[Tensor, " n"]]:
    """Return sequences with one token replaced by [MASK]'s vector, where it stood, and which token it was.

    Tokens and [MASK] are drawn from a standard normal; no token occurs twice in a sequence (assumption 3.1, 4).
    """
    (generator,) = generators_of([seed], _DATA)
    vectors = torch.randn(d_vocab + 1, d, generator=generator)
    ids = torch.rand(n, d_vocab, generator=generator).topk(n_pos, dim=1).indices  # different tokens in a random order
    positions = torch.randint(n_pos, (n,), generator=generator)
    hidden = ids[torch.arange(n), positions]
    visible = ids.clone()
    visible[torch.arange(n), positions] = d_vocab
    return vectors[visible], positions, hidden


def train_recall(
    kind: str,
    n_heads: int = 1024,
    n: int = 1024,
    seeds: Sequence[int] = (0, 1, 2),
    *,
    readout: Readout = "classes",
    batch_size: int = 128,
    epochs: int = 200,
    d_vocab: int = 2048,
    n_pos: int = 8,
    d: int = 16,
    learning_rate: float = 1e-3,
    stop_below: float | None = None,
) -> Recall:
    """Train one network a seed on `n` sequences with Adam; the paper's sizes by default.

    A seed decides vectors, sequences, order and weights. With `stop_below`, training ends once the loss on all
    sequences is below it for every seed. Raises `ValueError` for a loss that is not finite.
    """
    x, positions, hidden = (torch.stack(part) for part in zip(
        *(recall_data(seed, n, d_vocab=d_vocab, n_pos=n_pos, d=d) for seed in seeds), strict=True))  # fmt: skip
    network = _RecallNetworks(kind, d, n_pos, n_heads, d_vocab if readout == "classes" else 1, seeds)
    optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate)
    orders = generators_of(seeds, _ORDER)
    runs = torch.arange(len(seeds))[:, None]
    curve: list[np.ndarray] = []
    for epoch in range(epochs):
        order = torch.stack([torch.randperm(n, generator=generator) for generator in orders])
        total = torch.zeros(len(seeds))
        for start in range(0, n, batch_size):
            rows = order[:, start : start + batch_size]
            losses = _losses(network(x[runs, rows], positions[runs, rows]), hidden[runs, rows], readout, d_vocab)
            optimiser.zero_grad(set_to_none=True)
            losses.mean(1).sum().backward()
            optimiser.step()
            total += losses.detach().sum(1)
        curve.append((total / n).double().numpy())
        if not np.isfinite(curve[-1]).all():
            raise ValueError(f"{kind}: a loss is not finite after epoch {epoch + 1}; lower learning_rate.")
        near = stop_below is not None and bool((curve[-1] < 2 * stop_below).all())
        if near and (_evaluate(network, x, positions, hidden, readout, d_vocab)[0] < stop_below).all():
            break
    loss, accuracy = _evaluate(network, x, positions, hidden, readout, d_vocab)
    return Recall(
        kind=kind,
        readout=readout,
        n_heads=n_heads,
        n_sequences=n,
        seeds=tuple(seeds),
        epoch_loss=np.stack(curve, 1),
        loss=loss,
        accuracy=accuracy,
    )


def heads_needed(
    n: int,
    grid: Sequence[int],
    seed: int,
    *,
    kind: str = "F",
    below: float = 0.05,
    epochs: int = 200,
    readout: Readout = "classes",
) -> int | None:
    """Return the least number of heads in `grid` with which `kind` gets its training loss on `n` sequences below
    `below`.

    None where not even the largest does. Found by bisection, so it takes for granted that more heads are never worse;
    at most ⌊log₂(len(grid))⌋ + 1 networks are trained.
    """
    ordered = sorted(set(grid))
    low, high = 0, len(ordered)  # the answer is at an index from low to high; high: none of them
    while low < high:
        middle = (low + high) // 2
        reached = train_recall(kind, ordered[middle], n, (seed,), epochs=epochs, readout=readout, stop_below=below)
        if reached.loss[0] < below:
            high = middle
        else:
            low = middle + 1
    return ordered[high] if high < len(ordered) else None


def _losses(out: Tensor, hidden: Tensor, readout: str, d_vocab: int) -> Tensor:
    """Return losses `[run, batch]`."""
    if readout == "classes":
        return F.cross_entropy(out.flatten(0, 1), hidden.flatten(), reduction="none").view(hidden.shape)
    return (out[..., 0] - _number(hidden, d_vocab)).pow(2)


def _number(ids: Tensor, d_vocab: int) -> Tensor:
    """Scale ids to mean 0 and variance 1 over the vocabulary 0, …, d_vocab − 1."""
    return (ids - (d_vocab - 1) / 2) / _spread(d_vocab)


def _spread(d_vocab: int) -> float:
    return float(max(1, (d_vocab**2 - 1) / 12) ** 0.5)


@torch.no_grad()
def _evaluate(
    network: nn.Module, x: Tensor, positions: Tensor, hidden: Tensor, readout: str, d_vocab: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return loss and share named right on all sequences, a few hundred at a time."""
    losses, right = [], []
    for start in range(0, x.shape[1], 256):
        part = slice(start, start + 256)
        out = network(x[:, part], positions[:, part])
        losses.append(_losses(out, hidden[:, part], readout, d_vocab))
        if readout == "classes":
            right.append(out.argmax(-1) == hidden[:, part])
        else:
            right.append((out[..., 0] - _number(hidden[:, part], d_vocab)).abs() * _spread(d_vocab) < 0.5)
    return torch.cat(losses, 1).mean(1).double().numpy(), torch.cat(right, 1).double().mean(1).numpy()
