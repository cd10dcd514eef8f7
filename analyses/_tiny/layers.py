"""Attention layers with heads of size 1, for many runs at once.

In each run r, with x `[pos, d]` the tokens and head h's W_Q, W_K, W_V, W_O ∈ R^d,

    score_ij = (x_i·W_Q)(x_j·W_K)    result_i = Σ_j softmax_j(score_ij) (x_j·W_V) W_O    x_i ← x_i + Σ_h result_i

(*nonlinearity*, Section 3.1; attn_scale is 1/√1). Where a fixed vector a is appended and a token sees only itself and a
(Theorem 4.1), the softmax over two keys is a sigmoid:

    result_i = g (x_i·W_V) W_O + (1 − g)(a·W_V) W_O,    g = sigmoid((x_i·W_Q)(x_i·W_K − a·W_K)),

and a, which sees only itself, moves by Σ_h (a·W_V) W_O. Both equal an `AttentionOnlyTransformer` with d_head = 1, the
second with an `attn_mask` on pos + 1 positions, at pos times less work. Biases, norms and dropout there are none.

Shapes: tokens `[run, batch, pos, d]`, weights `[run, head, d]`, the appended vector `[run, d]`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class StackedHeads(nn.Module):
    """W_Q, W_K, W_V, W_O of one layer in every run; heads beyond a run's own number write nothing.

    Initial weights are those of `torch.nn.Linear` for each run's own number of heads.
    """

    keep: Tensor  # [run, head, 1], 1 for heads that a run has
    W_O: Tensor  # [run, head, d]

    def __init__(
        self, d: int, heads: Sequence[int], generators: Sequence[torch.Generator], *, query_key: bool = True
    ) -> None:
        super().__init__()
        most = max(heads)
        names = ("W_Q", "W_K", "W_V", "W_O") if query_key else ("W_V", "W_O")
        for name in names:
            weight = torch.zeros(len(heads), most, d)
            for run, (n_heads, generator) in enumerate(zip(heads, generators, strict=True)):
                fan_in = max(1, n_heads) if name == "W_O" else d
                weight[run, :n_heads] = (2 * torch.rand(n_heads, d, generator=generator) - 1) / math.sqrt(fan_in)
            setattr(self, name, nn.Parameter(weight))
        keep = torch.arange(most)[None, :] < torch.tensor(heads)[:, None]
        self.register_buffer("keep", keep[..., None].float())

    def read(self, x: Tensor, name: str) -> Tensor:
        """Return x·W for every head: `[run, batch, pos, head]` (or `[run, head]` for the appended vector)."""
        weight: Tensor = getattr(self, name)
        if x.ndim == 2:
            return torch.einsum("rd,rhd->rh", x, weight)
        return (x.flatten(1, 2) @ weight.transpose(1, 2)).unflatten(1, x.shape[1:3])

    def write(self, z: Tensor) -> Tensor:
        """Return Σ_h z_h W_O: back to the stream's shape."""
        weight = self.W_O * self.keep
        if z.ndim == 2:
            return torch.einsum("rh,rhd->rd", z, weight)
        return (z.flatten(1, 2) @ weight).unflatten(1, z.shape[1:3])


class SelfAttention(StackedHeads):
    """Standard attention, every token seeing all of them."""

    def forward(self, x: Tensor, at: Tensor | None = None) -> Tensor:
        """Return x after the layer; with `at [run, batch]` only at each sequence's position, `[run, batch, 1, d]`."""
        queries = x if at is None else take(x, at)
        q, k, v = self.read(queries, "W_Q"), self.read(x, "W_K"), self.read(x, "W_V")
        scores = q[:, :, :, None] * k[:, :, None]  # [run, batch, query, key, head]
        return queries + self.write((scores.softmax(3) * v[:, :, None]).sum(3))


class AuxiliaryAttention(StackedHeads):
    """Attention in which a token sees itself and an appended vector alone: an FFN in disguise (Theorem 4.1)."""

    def forward(self, x: Tensor, auxiliary: Tensor) -> tuple[Tensor, Tensor]:
        """Return x and the appended vector after the layer."""
        q, k, v = self.read(x, "W_Q"), self.read(x, "W_K"), self.read(x, "W_V")
        k_aux, v_aux = (self.read(auxiliary, name)[:, None, None] for name in ("W_K", "W_V"))
        gate = torch.sigmoid(q * (k - k_aux))
        after = x + self.write(v_aux + gate * (v - v_aux))
        return after, auxiliary + self.write(v_aux[:, 0, 0])


class PatternAttention(StackedHeads):
    """Heads that share one pattern, whatever the tokens (Definition 5.1): `pattern [run, query, key]`.

    Σ_h pattern x W_V W_O is one matrix on pattern x, which d heads can hold already. But more heads learn sooner: Adam
    moves each weight by about its learning rate, so the product moves in proportion to the heads.
    """

    pattern: Tensor

    def __init__(
        self, d: int, heads: Sequence[int], n_pos: int, generators: Sequence[torch.Generator], *, learned: bool
    ) -> None:
        super().__init__(d, heads, generators, query_key=False)
        scores = torch.stack([torch.randn(n_pos, n_pos, generator=generator) for generator in generators])
        if learned:
            self.pattern = nn.Parameter(scores.softmax(-1))
        else:
            self.register_buffer("pattern", scores.softmax(-1))

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        """Return the layer's output at one position of each sequence, `at [run, batch]`: `[run, batch, 1, d]`."""
        rows = self.pattern.gather(1, at[..., None].expand(-1, -1, self.pattern.shape[-1]))  # [run, batch, key]
        mixed = (rows[..., None] * x).sum(2, keepdim=True)
        return take(x, at) + self.write(self.read(mixed, "W_V"))


class FeedForward(nn.Module):
    """x + W_2 ReLU(W_1 x + b_1) + b_2 in every run, initialised as `torch.nn.Linear`."""

    def __init__(self, d: int, width: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.W_1, self.b_1 = (nn.Parameter(w) for w in linear(d, width, generators))
        self.W_2, self.b_2 = (nn.Parameter(w) for w in linear(width, d, generators))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(1, 2)
        hidden = torch.baddbmm(self.b_1[:, None], rows, self.W_1).relu()
        return x + torch.baddbmm(self.b_2[:, None], hidden, self.W_2).unflatten(1, x.shape[1:3])


def linear(d_in: int, d_out: int, generators: Sequence[torch.Generator]) -> tuple[Tensor, Tensor]:
    """Draw `torch.nn.Linear`'s initial weight and bias for each run: `[run, d_in, d_out]` and `[run, d_out]`."""
    pairs = [
        tuple(
            (2 * torch.rand(*shape, generator=generator) - 1) / math.sqrt(d_in) for shape in ((d_in, d_out), (d_out,))
        )
        for generator in generators
    ]
    weights, biases = zip(*pairs, strict=True)
    return torch.stack(weights), torch.stack(biases)


def take(x: Tensor, at: Tensor) -> Tensor:
    """Take a vector of each sequence at its position: `[run, batch, pos, d]`, `[run, batch]` → `[run, batch, 1, d]`."""
    return x.gather(2, at[..., None, None].expand(-1, -1, 1, x.shape[-1]))


def generators_of(seeds: Sequence[int], stream: int) -> list[torch.Generator]:
    """Return one generator a seed; streams keep data, weights and order apart."""
    return [torch.Generator().manual_seed(1_000_003 * stream + seed) for seed in seeds]
