"""The action of each attention layer on a token's stream, before it is written as heads.

The stream of a token is (h, 1, 0): m hidden coordinates, the constant that carries biases, and the coordinate on which
only the auxiliary token is not 0. `UnitLayer` works on the first m + 1 of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aotlens.distill.compile.ffn import FeedForward

Construction = Literal["lean", "narrow", "paper"]
CONSTRUCTIONS: tuple[Construction, ...] = ("lean", "narrow", "paper")

#: s with SiLU(s) = 1, by which the paper's construction carries its constant: s = 1 + W(1/e), W being Lambert's.
SILU_ONE = 1.2784645427610738


@dataclass(frozen=True, kw_only=True, eq=False)
class UnitLayer:
    """stream ← stream − (its cleared coordinates) + Σ_u η_u SiLU(stream · read_u / η_u) write_u + bias.

    With η → 0 a unit is ReLU: η SiLU(x/η) lies within 0.2785 η below it, for every x.
    """

    read: Float[Tensor, "coordinate unit"]
    write: Float[Tensor, "unit coordinate"]
    eta: Float[Tensor, " unit"]
    """1 for units that are SiLU."""
    relu: Bool[Tensor, " unit"]
    """Units that stand for ReLU, and so have an error of their own."""
    cleared: Bool[Tensor, " coordinate"]
    """Coordinates whose skip connection is cancelled."""
    construction: Construction
    """The heads that cancel them: one wide head that sees its own token only (lean), such heads of size 1 (narrow), or
    pairs of units (paper: Lemma E.3, SiLU(−z) − SiLU(z) = −z)."""
    bias: Float[Tensor, " coordinate"]
    """The term added to the stream by a head that sees its own token only; 0 where a unit does it."""

    @property
    def n_coordinates(self) -> int:
        """The number of coordinates, m + 1."""
        return self.read.shape[0]


def stream_width(ffn: FeedForward, construction: Construction) -> int:
    """Return d_model: max(W, D, D') + 2 for "paper" (whose Theorem 4.1 takes D' ≤ W for granted).

    The last hidden layer never lies in the stream, its units' heads write the output at once; so the others need
    max(D, W_1, …, W_{L−1}, D') + 2 only.
    """
    widths = ffn.widths if construction == "paper" else ffn.widths[:-1]
    return max(*widths, ffn.d_in, ffn.d_out) + 2


def heads_needed(ffn: FeedForward, construction: Construction) -> tuple[int, ...]:
    """Return heads of each layer, as `compile_ffn` lists them; units whose weights are all zero are counted here.

    "paper" is what Theorem 4.1's proof needs, of which the theorem states max{W, D} + 1. The last layer's constant
    carries the last bias on; without one it needs no head.
    """
    before = (ffn.d_in, *ffn.widths[:-1])
    counts = []
    for layer, (inputs, width) in enumerate(zip(before, ffn.widths, strict=True)):
        last, bias = layer == ffn.depth - 1, bool(ffn.biases[-1].any())
        narrow, paper = width + inputs + (last and bias), width + (bias or not last) + 2 * (inputs + 1)
        counts.append({"lean": width + 1, "narrow": narrow, "paper": paper}[construction])
    return tuple(counts)


def unit_layers(ffn: FeedForward, etas: Sequence[float], construction: Construction) -> tuple[UnitLayer, ...]:
    """Return one `UnitLayer` for each hidden layer; `etas[ℓ]` is η of layer ℓ where it is ReLU.

    lean, narrow: unit u of layer ℓ reads column u of W_ℓ and its bias from the constant, and writes coordinate u (the
    last layer's: row u of W_{L+1}); heads that see their own token only clear what the layer before had written, and
    add the last bias.

    paper: Lemma E.1 makes biases weights of a constant that every layer carries on by a unit of its own: SiLU(s·1) = 1.
    (Its proof carries it through ReLU and then replaces ReLU by SiLU, which changes the constant; and its last matrix
    has a row too many.) Lemma E.3 clears every coordinate in use, the constant too, by two units.
    """
    m = stream_width(ffn, construction) - 2
    paper = construction == "paper"
    layers = []
    before = ffn.d_in
    for i, (eta, activation) in enumerate(zip(etas, ffn.activations, strict=True)):
        width, last = ffn.widths[i], i == ffn.depth - 1
        units = width + 1 if paper else width
        read, write = _zeros(m + 1, units), _zeros(units, m + 1)
        read[:before, :width] = ffn.weights[i]
        read[m, :width] = ffn.biases[i]
        eta_of, relu = torch.ones(units, dtype=torch.float64), torch.zeros(units, dtype=torch.bool)
        if activation == "relu":
            eta_of[:width], relu[:width] = eta, True
        cleared, bias = torch.zeros(m + 1, dtype=torch.bool), _zeros(m + 1)
        cleared[:before] = True
        if paper:
            read[m, width] = SILU_ONE
            cleared[m] = True
        if last:
            write[:width, : ffn.d_out] = ffn.weights[-1]
            (write[width] if paper else bias)[: ffn.d_out] = ffn.biases[-1]
        else:
            write[:width, :width] = torch.eye(width, dtype=torch.float64)
            if paper:
                write[width, m] = 1.0
        layers.append(
            UnitLayer(
                read=read, write=write, eta=eta_of, relu=relu, cleared=cleared, construction=construction, bias=bias
            )
        )  # fmt: skip
        before = width
    return tuple(layers)


def _zeros(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)
