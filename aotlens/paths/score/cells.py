"""The terms of one score's two sides, one step back: source terms, and every earlier cell.

With P′ an earlier head's pattern and v′ its values, the stream at position i is its sources (what the MLPs of earlier
layers wrote there among them), Σ b_O and Σ_h′ Σ_m P′_im v′_m W_O. The query reads it at i; the key side reads it at
every visible key k, with the contrast's coefficient δ_kj − w_k: the cells at k = j alone are not the contrast.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.paths.frozen import Frozen
from aotlens.paths.path import SourceName
from aotlens.paths.score.side import ScoreSide


@dataclass(frozen=True, eq=False)
class Partition:
    """A contrast as a sum of terms of one side, each times the whole other side; nats."""

    sources: dict[SourceName, Float[Tensor, " pos"]]
    """Token, input, positions and what the MLPs of the layers below wrote, by where they stand."""
    bias: float
    """Σ b_O of the layers below, the norm's bias and the head's own, at all positions together: on the key side of a
    contrast the head's own cancels between keys."""
    cells: Float[Tensor, "layer head query key"]
    """The contribution of every earlier cell; its query is the position that the side reads."""

    @property
    def total(self) -> float:
        """The contrast, the sum of all terms."""
        return float(sum(x.sum() for x in self.sources.values())) + self.bias + float(self.cells.sum())

    @property
    def size(self) -> float:
        """Σ |term|, the sum of the sizes of all terms."""
        sources = float(sum(x.abs().sum() for x in self.sources.values()))
        return sources + abs(self.bias) + float(self.cells.abs().sum())


def partition(
    frozen: Frozen, side: ScoreSide, other: Float[Tensor, " d_head"], values: Float[Tensor, "layer head pos d_head"]
) -> Partition:
    """Return the terms of one side, given the whole of the other and the values of all heads below, biases in them.

    O(L H pos² + pos · L · d_model · d_head) time; memory as the patterns below.
    """
    direction, rows, layer = side.W @ other, side.rows, side.layer.layer
    entering = side.layer.below.frozen.entering
    sources: dict[SourceName, Tensor] = {name: rows * (x @ direction) for name, x in entering.items()}
    if side.positions is not None:
        sources["position"] = side.weights * (side.positions @ other)
    bias = rows.sum() * (frozen.bias_before[layer] @ direction) + side.own_bias @ other
    brought = torch.einsum("lhpk,lhk->lhp", values[:layer], frozen.W_O[:layer] @ direction)
    cells = rows[:, None] * frozen.patterns[:layer] * brought[:, :, None]
    return Partition(sources=sources, bias=float(bias), cells=cells)
