"""Whether the paths add up to the model's logits, or to its scores."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.paths.frozen import Frozen
from aotlens.paths.target import output
from aotlens.results import Result

_UNITS = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@dataclass(frozen=True, kw_only=True)
class Residual(Result):
    """Σ over all paths − the model's logits, in logits; of a score, Σ over all pairs − the score, in nats.

    Rounding is all there is to it.
    """

    largest: float | int
    """The largest difference over positions and outputs, in size."""
    largest_term: float | int
    """The largest contribution of one order, in size: terms that cancel lose digits."""
    largest_logit: float | int
    """The model's largest logit in size, or the largest score of the query."""
    tolerance: float | int
    """1e-4 (float32) or 1e-9 (float64) × max(1, largest term, largest logit).

    For a model in half precision, whose own pass rounds more than any sum: 4e-3 (float16) or 3e-2 (bfloat16) × this.
    """
    unit: str = "logits"

    @property
    def headline(self) -> str:
        return str(self)

    @property
    def within_tolerance(self) -> bool:
        return self.largest <= self.tolerance

    def __str__(self) -> str:
        return f"sum of paths − model: {self.largest:.2g} {self.unit} (tolerance {self.tolerance:.2g})"


def residual_of(frozen: Frozen, orders: Float[Tensor, "order pos d_model"]) -> Residual:
    """Compare the sum over orders with the logits of the pass that froze the model; one order's logits at a time."""
    total, term, logit = torch.zeros_like(frozen.logits), 0.0, float(frozen.logits.abs().max())
    for order, stream in enumerate(orders):
        logits = output(frozen, stream[None], None, bias_row=0 if order == 0 else None)[0]
        term = max(term, float(logits.abs().max()))
        total += logits
    return Residual(
        largest=float((total - frozen.logits).abs().max()),
        largest_term=term,
        largest_logit=logit,
        tolerance=_UNITS[frozen.precision] * max(1.0, term, logit),
    )


def residual_of_score(terms: Float[Tensor, "*terms"], score: float, largest: float, precision: torch.dtype) -> Residual:
    """Compare a sum of terms with the model's own score, of a query whose scores are at most `largest` in size."""
    term = float(terms.abs().max())
    return Residual(
        largest=abs(float(terms.sum()) - score),
        largest_term=term,
        largest_logit=largest,
        tolerance=_UNITS[precision] * max(1.0, term, largest),
        unit="nats",
    )
