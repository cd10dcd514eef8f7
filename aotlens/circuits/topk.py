"""The largest entries of a factored matrix of any size: exact, streamed, never the whole product at once.

Of the whole matrix: rows and columns are ordered by norm, so that a tile's largest possible entry, ‖a‖ ‖b‖ of its first
row and column, falls from tile to tile. Tiles are visited in the order of that bound, and once it is below the k-th
best entry known (exactly, in float64) no later tile matters. In a visited tile only each row's maximum is kept; rows
that reach the k-th best less the rounding bound are looked at again, and their entries that do are candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Lock
from typing import NamedTuple

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.circuits.factored import FactoredMatrix
from aotlens.circuits.factors import Factors, check, prepare
from aotlens.circuits.per_row import best_per_row
from aotlens.circuits.tiles import LARGE_CPU_TILE, MERGE_BYTES, Best, Tiles, n_workers, share, tile_sizes
from aotlens.results import Result, describe

#: Bytes of an entry of a recomputed row if it becomes a candidate: product, mask, indices and their copies.
ENTRY_BYTES = 64


class TopEntries(NamedTuple):
    """Entries of a matrix, best first, on the CPU."""

    values: Float64[Tensor, " k"]
    rows: Int64[Tensor, " k"]
    columns: Int64[Tensor, " k"]

    def __repr__(self) -> str:
        return describe(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class EntrySearch(Result):
    """The result of `top_entries`: the entries, and how much of the matrix it had to compute."""

    entries: TopEntries
    share_skipped: float
    """Share of the matrix in tiles that could not hold one of the k best, by their norms, and were never computed."""
    n_candidates: int
    """Entries that were computed in float64, k included; like the share, with several threads a matter of timing."""

    @property
    def headline(self) -> str:
        return f"{self.share_skipped:.0%} of the matrix was skipped"


def best_of_all(factors: Factors, k: int, max_bytes: int) -> EntrySearch:
    """Return the k best entries of `factors`, which have one scale for all rows."""
    search = _WholeSearch(factors, k, max_bytes)
    search.zeros()
    search.tiles_in_order()
    search.settle()
    best = search.best
    n_columns = factors.shape[1]
    size = factors.shape[0] * n_columns
    return EntrySearch(
        entries=TopEntries(best.value.cpu(), (best.key // n_columns).cpu(), (best.key % n_columns).cpu()),
        share_skipped=(size - search.n_computed) / size,
        n_candidates=search.n_candidates,
    )


class _WholeSearch:
    def __init__(self, factors: Factors, k: int, max_bytes: int) -> None:
        self.factors, self.k = factors, k
        self.device = factors.rows32.device
        n_rows, n_columns = factors.shape
        # Rows and columns of zeros are last, and are left to `zeros`.
        self.row_order, self.row_norms = _by_norm(factors.row_norms)
        self.column_order, self.column_norms = _by_norm(factors.column_norms)
        ordered = 4 * factors.inner * (len(self.row_order) + len(self.column_order)) + 32 * (n_rows + n_columns)
        left = max_bytes - factors.copied_bytes - ordered - 2 * MERGE_BYTES * k
        shape = max(1, len(self.row_order)), max(1, len(self.column_order))
        self.n_workers = n_workers(self.device, shape[0] * shape[1])
        # A quarter each for tiles, for recomputed rows and for candidates; one is spare.
        each = left // 4 // self.n_workers
        self.tile_rows, self.tile_columns = tile_sizes(*shape, each, device=self.device, on_cpu=LARGE_CPU_TILE)
        row_bytes = ENTRY_BYTES * self.tile_columns + 4 * factors.inner
        self.recomputed_rows = min(self.tile_rows, each // row_bytes)
        self.pool = left // 4 // MERGE_BYTES
        if min(self.recomputed_rows, self.pool) < 1:
            raise ValueError(
                f"max_bytes={max_bytes} is too small for one row of one tile: {max_bytes - left} are taken by ordered "
                f"copies of the factors and by k = {k} entries, and {4 * self.n_workers * max(row_bytes, MERGE_BYTES)} "
                "more are needed."
            )
        self.rows32 = factors.rows32.index_select(0, self.row_order)
        self.columns32 = factors.columns32.index_select(0, self.column_order)
        self.lock = Lock()  # over everything below
        self.best = Best(k=k, device=self.device)
        self.cut = -torch.inf  # the k-th best in scaled units, once there are k
        self.pending: list[tuple[Tensor, Tensor]] = []
        self.n_pending = self.n_computed = self.n_candidates = 0
        self.floor = float(factors.floors[0])

    def zeros(self) -> None:
        """Entries of rows and columns of zeros are 0: the first k of them, row by row, are known without products."""
        n_columns = self.factors.shape[1]
        zero_rows, zero_columns = self.factors.row_norms == 0, (self.factors.column_norms == 0).nonzero().squeeze(1)
        counts = torch.where(zero_rows, n_columns, len(zero_columns))
        enough = int((counts.cumsum(0) < self.k).sum()) + 1
        rows = torch.arange(len(counts), device=self.device)[:enough]
        rows = rows.repeat_interleave(counts[:enough].clamp(max=self.k))
        if not len(rows):
            return
        starts = torch.ones(len(rows), dtype=torch.bool, device=self.device)
        starts[1:] = rows[1:] != rows[:-1]
        place = torch.arange(len(rows), device=self.device)
        place = place - torch.cummax(torch.where(starts, place, 0), 0).values
        whole = zero_rows[rows]
        columns = place.clone()
        columns[~whole] = zero_columns[place[~whole]]
        self._merge(rows * n_columns + columns, torch.zeros(len(rows), dtype=torch.float64, device=self.device))

    def tiles_in_order(self) -> None:
        """Visit tiles from the largest bound to the smallest that matters."""
        if not len(self.row_order) or not len(self.column_order):
            return
        row_bounds, column_bounds = self.row_norms[:: self.tile_rows], self.column_norms[:: self.tile_columns]
        bounds, order = (row_bounds[:, None] * column_bounds).flatten().sort(descending=True, stable=True)
        n_across = len(column_bounds)
        left = iter(zip(bounds.tolist(), order.tolist(), strict=True))

        def work(worker: int) -> None:
            tiles = Tiles(rows=self.tile_rows, columns=self.tile_columns, device=self.device)
            while True:
                with self.lock:
                    bound, tile = next(left, (-torch.inf, 0))
                    error = self.factors.error * bound + self.floor
                    if bound == -torch.inf or bound + error < self.cut:
                        return
                self._visit(tiles, tile // n_across * self.tile_rows, tile % n_across * self.tile_columns, error)

        share(work, self.n_workers)

    def _visit(self, tiles: Tiles, r: int, c: int, error: float) -> None:
        """Find a tile's candidates. Others may raise the cut meanwhile: an older one lets more through, never less."""
        left, right = self.rows32[r : r + self.tile_rows], self.columns32[c : c + self.tile_columns]
        maxima = tiles.maxima(left, right, self.tile_columns).squeeze(1)  # one block: the whole row
        hit = (maxima >= self.cut - error).nonzero().squeeze(1)
        with self.lock:
            self.n_computed += len(left) * len(right)
        for part in hit.split(self.recomputed_rows):
            product = tiles.some_rows(part)
            row, column = (product >= self.cut - error).nonzero().unbind(1)
            if len(row) > self.k:
                # The k largest products here reach their least less the bound: so does the k-th best of all.
                near = product[row, column]
                is_candidate = near >= float(near.topk(self.k, sorted=False).values.amin()) - 2 * error
                row, column = row[is_candidate], column[is_candidate]
            if not len(row):
                continue
            with self.lock:
                if self.n_pending + len(row) > self.pool:
                    self.settle()
                self.pending.append((self.row_order[part[row] + r], self.column_order[column + c]))
                self.n_pending += len(row)
        with self.lock:
            if self.n_pending >= max(256, self.k // 4):
                self.settle()

    def settle(self) -> None:
        """Order what is pending, and raise the cut."""
        if not self.pending:
            return
        rows, columns = (torch.cat(parts) for parts in zip(*self.pending, strict=True))
        self.pending, self.n_pending = [], 0
        self.n_candidates += len(rows)
        self._merge(rows * self.factors.shape[1] + columns, self.factors.entries(rows, columns))

    def _merge(self, key: Tensor, value: Tensor) -> None:
        self.best.merge(torch.zeros_like(key), key, value)
        if len(self.best.value) == self.k:
            self.cut = float(self.factors.scaled(self.best.value[-1], 0))


def _by_norm(norms: Tensor) -> tuple[Tensor, Tensor]:
    """The order from the largest norm to the smallest above 0, and the norms in that order."""
    ordered, order = norms.sort(descending=True, stable=True)
    n = int((ordered > 0).sum())
    return order[:n], ordered[:n]


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
    `factors.dot_products`; the order follows these values. So the answer is a function of the factors alone: tiles,
    threads, device and PyTorch's precision of float32 products do not change a bit of it (`torch.set_flush_denormal`
    would, for numbers below 1e-38).

    Tiles of float32 products are searched for entries within a proven rounding bound of the k-th best (`factors.py`),
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
    """Return `top_per_row` of the transpose: `values` and `indices` (rows), `[columns, k]`; ties in order of rows."""
    check(circuit)  # before the factors change places
    _check_k(k, circuit.shape[-2], f"entries of a column of a {circuit.shape[-2]} × {circuit.shape[-1]} matrix")
    return top_per_row(FactoredMatrix(circuit.B.T, circuit.A.T), k, largest, max_bytes=max_bytes)


def _check_k(k: int, most: int, of_what: str) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= most:
        raise ValueError(f"expected k between 1 and {most}, the number of {of_what}; got {k}.")
