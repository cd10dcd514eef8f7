"""The largest entries of a factored matrix of any size: exact, streamed, never the whole product at once."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.circuits.factored import FactoredMatrix
from aotlens.circuits.factors import check, prepare
from aotlens.circuits.per_row import best_per_row
from aotlens.circuits.whole import EntrySearch, TopEntries, best_of_all
from aotlens.results import describe

#: Bytes that a search may use beyond the circuit's own factors, its result included.
MAX_BYTES = 512 * 10**6


class TopPerLine(NamedTuple):
    """The best entries of every row (or column), best first, on the CPU."""

    values: Float64[Tensor, "line k"]
    indices: Int64[Tensor, "line k"]
    """Columns, for rows; rows, for columns."""

    def __repr__(self) -> str:
        return describe(self)


@torch.no_grad()
def top_entries(circuit: FactoredMatrix, k: int, largest: bool = True, *, max_bytes: int = MAX_BYTES) -> TopEntries:
    """Return the `k` largest (or smallest) entries of M = A B, exactly, ordered by value, then row, then column.

    `circuit` holds A `[rows, inner]` and B `[inner, columns]`: float32, float64 or shorter floats, which count as
    float32. A value is the float64 dot product of a row of A with a column of B, summed in the fixed order of
    `exact.dot_products`; the order follows these values. So the answer is a function of the factors alone: tiles,
    threads, device and PyTorch's precision of float32 products do not change a bit of it (`torch.set_flush_denormal`
    would, for numbers below 1e-38).

    Tiles of float32 products are searched for entries within a proven rounding bound of the k-th best (`bounds.py`),
    and those are computed in float64. Tiles are visited in the order of ‖row‖ ‖column‖, and the rest is skipped once
    that cannot reach the k-th best: nothing where norms are alike, most of a matrix whose norms vary (`search_entries`
    says how much). Time: at most about that of the float32 product. Memory beyond the factors: `max_bytes`.

    Raises `ValueError` if k is below 1 or above the number of entries; if a factor is not finite, not real, or has no
    entries; if the circuit is not one matrix; and if `max_bytes` cannot hold the least there is to hold.
    """
    return search_entries(circuit, k, largest, max_bytes=max_bytes).entries


@torch.no_grad()
def search_entries(circuit: FactoredMatrix, k: int, largest: bool = True, *, max_bytes: int = MAX_BYTES) -> EntrySearch:
    """Return `top_entries`, with the share of the matrix that was skipped."""
    size = circuit.shape[-2] * circuit.shape[-1]
    factors = prepare(circuit, max_bytes, largest=largest)
    _check_k(k, size, f"entries of a {circuit.shape[-2]} × {circuit.shape[-1]} matrix")
    best = best_of_all(factors, k, max_bytes)
    if largest:
        return best
    return replace(best, entries=best.entries._replace(values=best.entries.values.neg().add_(0.0)))


@torch.no_grad()
def top_per_row(circuit: FactoredMatrix, k: int, largest: bool = True, *, max_bytes: int = MAX_BYTES) -> TopPerLine:
    """Return the `k` largest (or smallest) entries of every row of M = A B, exactly, ordered by value, then column.

    As `top_entries`, row by row: `values` float64 and `indices` (columns) int64, `[rows, k]`. Time: the float32 product
    and some 15%, if k is small beside the number of columns and few entries are equal. `k` may be at most the number of
    columns, and the result (16 bytes for each of rows · k) counts towards `max_bytes`.
    """
    factors = prepare(circuit, max_bytes, largest=largest, by_row=True)
    _check_k(k, circuit.shape[-1], f"entries of a row of a {circuit.shape[-2]} × {circuit.shape[-1]} matrix")
    values, columns = best_per_row(factors, k, max_bytes)
    return TopPerLine(values if largest else values.neg_().add_(0.0), columns)


def top_per_column(circuit: FactoredMatrix, k: int, largest: bool = True, *, max_bytes: int = MAX_BYTES) -> TopPerLine:
    """Return `top_per_row` of the transpose: `values` and `indices` (rows), `[columns, k]`; equal values in order of
    rows."""
    check(circuit)  # before the factors change places
    _check_k(k, circuit.shape[-2], f"entries of a column of a {circuit.shape[-2]} × {circuit.shape[-1]} matrix")
    return top_per_row(FactoredMatrix(circuit.B.T, circuit.A.T), k, largest, max_bytes=max_bytes)


def _check_k(k: int, most: int, of_what: str) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= most:
        raise ValueError(f"expected k between 1 and {most}, the number of {of_what}; got {k}.")
