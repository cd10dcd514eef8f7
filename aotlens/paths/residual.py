"""Whether the paths add up to the model's logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.paths.frozen import Frozen


@dataclass(frozen=True, kw_only=True)
class Residual:
    """Σ over all paths − the model's logits, in logits. Rounding is all there is to it."""

    largest: float | int
    """The largest difference over positions and outputs, in size."""
    largest_term: float | int
    """The largest contribution of one order, in size: terms that cancel lose digits."""
    largest_logit: float | int
    tolerance: float | int
    """1e-4 (float32) or 1e-9 (float64) × max(1, largest term, largest logit)."""

    @property
    def within_tolerance(self) -> bool:
        return self.largest <= self.tolerance

    def __str__(self) -> str:
        return f"sum of paths − model: {self.largest:.2g} logits (tolerance {self.tolerance:.2g})"


def residual_of(frozen: Frozen, by_order: Float[Tensor, "order pos out"]) -> Residual:
    """Compare the sum over orders with the logits of the pass that froze the model."""
    unit = 1e-9 if by_order.dtype == torch.float64 else 1e-4
    term, logit = float(by_order.abs().max()), float(frozen.logits.abs().max())
    return Residual(
        largest=float((by_order.sum(0) - frozen.logits).abs().max()),
        largest_term=term,
        largest_logit=logit,
        tolerance=unit * max(1.0, term, logit),
    )
