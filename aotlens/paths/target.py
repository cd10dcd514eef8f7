"""The target that a contribution is measured on: every output, one token's logit, or the difference of two; and whether
the paths add up to the model's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_whole
from aotlens.paths.frozen import Frozen
from aotlens.results import Result

#: One output, or (token, versus): the first's logit minus the second's. None: all outputs.
Target: TypeAlias = int | tuple[int, int] | None


@dataclass(frozen=True, eq=False)
class Direction:
    """A logit, or a difference of two, as a direction of the stream before the read-out's scale."""

    target: int | tuple[int, int]
    column: Float[Tensor, " d_model"]
    bias: float
    """The contribution of `out_bias` to it, logits."""

    def of(self, logits: Float[Tensor, "*more out"]) -> Float[Tensor, "*more"]:
        """Return the same logit, or difference, of the model's own output."""
        if isinstance(self.target, tuple):
            return logits[..., self.target[0]] - logits[..., self.target[1]]
        return logits[..., self.target]


def direction(frozen: Frozen, target: Any) -> Direction:
    """Return the direction of an output or of (token, versus); raises `ValueError` as `checked_outputs` does."""
    ids = checked_outputs(target, frozen.R.shape[1])
    if len(ids) == 1:
        return Direction(target=ids[0], column=frozen.R[:, ids[0]], bias=float(frozen.out_bias[ids[0]]))
    token, versus = ids
    return Direction(
        target=(token, versus),
        column=frozen.R[:, token] - frozen.R[:, versus],
        bias=float(frozen.out_bias[token] - frozen.out_bias[versus]),
    )


def checked_outputs(target: Any, n_out: int) -> tuple[int, ...]:
    """Return an output, or two (token, versus). Raises `ValueError` unless they are different outputs of the model."""
    ids = _ids(target)
    if not ids or not all(0 <= i < n_out for i in ids):
        raise ValueError(
            f"target {target!r}: expected an output 0 to {n_out - 1}, or two of them (token, versus); "
            "model.to_single_token(text) is the number of a token."
        )
    if len(ids) == 2 and ids[0] == ids[1]:
        raise ValueError(f"target {target!r}: expected two different outputs; a logit minus itself has no paths.")
    return ids


def _ids(target: Any) -> tuple[int, ...]:
    """One number or two, of whatever integer type; () for anything else."""
    try:
        if isinstance(target, Sequence) and not isinstance(target, str):
            return tuple(index(i) for i in target) if len(target) == 2 else ()
        return () if isinstance(target, bool) else (index(target),)
    except TypeError:
        return ()


def checked_position(frozen: Frozen, position: int) -> int:
    """Return a position from 0; negative ones count from the end. Raises `ValueError` outside the output."""
    return place_of("position", position, frozen.read.shape[0])


def place_of(name: str, position: Any, n: int) -> int:
    """Return a position of `n` from 0; negative ones count from the end. Raises `ValueError` for another."""
    return require_whole(name, position, -n, n - 1) % n


def output(frozen: Frozen, streams: Tensor, target: Target, bias_row: int | None) -> Tensor:
    """Return streams `[row, pos, d_model]` as logits `[row, out_pos, out]` (`[row, out_pos]` of one target), with
    `out_bias` in row `bias_row`."""
    if target is None:
        logits = frozen.read_out(streams)
        if bias_row is not None:
            logits[bias_row] += frozen.out_bias
        return logits
    to = direction(frozen, target)
    values = frozen.pooled(streams) @ to.column
    if bias_row is not None:
        values[bias_row] += to.bias
    return values


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
