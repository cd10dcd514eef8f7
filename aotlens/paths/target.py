"""The target that a contribution is measured on: every output, one token's logit, or the difference of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, TypeAlias

from jaxtyping import Float
from torch import Tensor

from aotlens.paths.frozen import Frozen

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
    """Return one output, or two (token, versus), given as any kind of whole number.

    Raises `ValueError` for what is neither an output of the model nor two different ones.
    """
    ids = _ids(target)
    if not ids or not all(0 <= i < n_out for i in ids):
        raise ValueError(
            f"target {target!r}: expected an output 0 to {n_out - 1}, or two of them (token, versus); "
            "model.to_single_token(text) is the number of a token."
        )
    if len(ids) == 2 and ids[0] == ids[1]:
        raise ValueError(f"target {target!r}: expected two different outputs; a logit minus itself has no paths.")
    return ids


def whole_number(name: str, value: Any) -> int:
    """Return a whole number of any type. Raises `ValueError` for anything else, truth values included."""
    try:
        if not isinstance(value, bool):
            return index(value)
    except TypeError:
        pass
    raise ValueError(f"{name}={value!r}: expected a whole number.")


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
    return in_range(position, frozen.read.shape[0])


def in_range(position: int, n: int) -> int:
    """Return the position, as `checked_position` does, for an output of `n` positions."""
    if not -n <= position < n:
        raise ValueError(f"position={position}: expected {-n} to {n - 1} for an output of {n} positions.")
    return position % n


def output(frozen: Frozen, streams: Tensor, target: Target, bias_row: int | None) -> Tensor:
    """Return streams `[row, pos, d_model]` as logits `[row, out_pos, out]`, or `[row, out_pos]` of one target.

    `out_bias` goes to row `bias_row`, if any.
    """
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
