"""The largest entry of every row of a product, streamed, and how far rounding may have moved it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.circuits.bounds import coefficient, input_unit

TILE = (1024, 1024)
_UNDERFLOW = 2.0**-126  # what flushing a float32 term to zero can cost, between rows near 1
_UNIT = 2.0**-53


class Columns(NamedTuple):
    """The right-hand rows of products, as `row_maxima` reads them."""

    rows: Tensor
    exponent: int
    longest: float


def columns_of(right: Tensor, kind: torch.dtype) -> Columns:
    """Return `right` in `kind`: float32 where it is, float64 on the CPU."""
    right = right.to(right.device if kind == torch.float32 else torch.device("cpu"))
    exponent = int(_exponents(right).max(initial=0)) if len(right) else 0
    rows = _times_power(right, torch.full((len(right), 1), -exponent)).to(kind)
    return Columns(rows, exponent, float(norms(rows).max(initial=0.0)))


def row_maxima(
    left: Tensor, columns: Columns, mask: Callable[[Tensor], Tensor] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Find for every row of left @ right.T its largest (admitted) entry, and how far rounding may have moved it.

    Each row of `left`, and `right` as a whole, are brought near 1 by powers of two: float32 has no room for 1e-46.
    """
    right, kind, device = columns.rows, columns.rows.dtype, columns.rows.device
    exponents = _exponents(left)
    left = _times_power(left.to(device), torch.from_numpy(-exponents)[:, None]).to(kind)
    best = torch.full((len(left),), -torch.inf, dtype=kind, device=device)
    buffer = torch.empty(TILE[0] * TILE[1], dtype=kind, device=device)  # a fresh tile each time costs page faults
    for start in range(0, len(left), TILE[0]):
        rows = left[start : start + TILE[0]]
        into = best[start : start + len(rows)]
        for part in right.split(TILE[1]):
            tile = torch.mm(rows, part.T, out=buffer[: len(rows) * len(part)].view(len(rows), len(part)))
            torch.maximum(into, (mask(tile) if mask else tile).amax(1), out=into)
    if bool(best.isnan().any()):
        raise ValueError("the circuits have entries that are not finite; is some weight not?")
    unit = coefficient(left.shape[1], input_unit(device)) if kind == torch.float32 else _UNIT * (left.shape[1] + 4)
    slack = 1.01 * (unit * norms(left) * columns.longest + left.shape[1] * _UNDERFLOW)
    back = exponents + columns.exponent
    return np.ldexp(best.cpu().double().numpy(), back), np.ldexp(slack, back)


def _exponents(rows: Tensor) -> Int64[np.ndarray, " row"]:
    """Return for every row e with its largest magnitude in [2^(e−1), 2^e); 0 for a row of zeros."""
    if not rows.shape[1]:
        return np.zeros(len(rows), dtype=np.int64)
    return np.frexp(rows.abs().amax(1).cpu().double().numpy())[1].astype(np.int64)


def _times_power(rows: Tensor, exponents: Tensor) -> Tensor:
    """rows · 2^exponents, in two steps, either of which the dtype has room for."""
    half = exponents // 2
    for part in (half, exponents - half):
        rows = rows * torch.exp2(part.to(torch.float32)).to(rows) if rows.dtype != torch.float64 else (
            rows * torch.exp2(part.to(torch.float64)).to(rows.device)
        )  # fmt: skip
    return rows


def norms(rows: Tensor) -> Float64[np.ndarray, " row"]:
    """Return the norm of every row, in float64."""
    return rows.cpu().double().norm(dim=1).numpy()
