"""The k largest entries of every row of a small matrix: a product and a `topk`, then the candidates in float64.

The tiled search (`per_row.py`) makes a few calls of PyTorch for every panel of columns; below some thousand columns
those are most of its work. Here a strip of whole rows is multiplied at once, in float32, and its k + `SPARE` largest
products are candidates. With p the k-th of them and e the rounding bound of the row (`bounds.py`), at least k entries
reach p − e exactly, and an entry that does has a product of at least p − 2e. So where the last candidate's product is
below that, no entry of the k best is missing; where it is not (ties by the dozen), every product that reaches p − 2e
is a candidate. Candidates are computed in float64 and ordered by that, ties by column: the tiled search's values and
order, bit for bit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from aotlens.circuits.best import MERGE_BYTES, Best
from aotlens.circuits.factors import Factors, sum_of_terms
from aotlens.circuits.tiles import Tiles

#: Entries of a matrix up to which this is the shorter road (measured: `python -m benchmarks circuits`).
MOST_ENTRIES = 2**25
#: Candidates of a row beyond the k: they tell that nothing is missing.
SPARE = 2
#: Bytes of an entry of a strip, should every one be a candidate: its product, masks, indices, and what merging takes.
ENTRY_BYTES = MERGE_BYTES + 48
#: Products of a strip: 4 MB.
STRIP_ENTRIES = 2**20
#: Rows of a strip below which its calls cost more than the tiles' do.
LEAST_STRIP = 64


def strip_rows(factors: Factors, k: int, left_bytes: int) -> int:
    """Return rows of a strip that fits `left_bytes` whatever the ties; 0 where few do, or the matrix is too large."""
    n_rows, n_columns = factors.shape
    if n_rows * n_columns > MOST_ENTRIES or k + SPARE > n_columns:
        return 0
    shared = 8 * factors.inner * n_columns  # the columns in float64
    row_bytes = ENTRY_BYTES * n_columns + (k + SPARE) * (24 * factors.inner + MERGE_BYTES)
    strip = min(n_rows, max(1, STRIP_ENTRIES // n_columns), max(0, left_bytes - shared) // row_bytes)
    return strip if strip >= min(n_rows, LEAST_STRIP) else 0


def best_per_row(factors: Factors, k: int, strip: int) -> tuple[Tensor, Tensor]:
    """Find the best of each row as `per_row.best_per_row` does, by strips of `strip` rows."""
    n_rows, n_columns = factors.shape
    values = torch.empty(n_rows, k, dtype=torch.float64)
    indices = torch.empty(n_rows, k, dtype=torch.int64)
    errors = (factors.error * factors.row_norms * factors.column_norms.amax() + factors.floors).float()
    wide_columns = factors.columns.double()
    tiles = Tiles(rows=strip, columns=n_columns, device=factors.rows32.device)
    for start in range(0, n_rows, strip):
        rows = slice(start, min(start + strip, n_rows))
        products = tiles.product(factors.rows32[rows], factors.columns32)
        top = products.topk(k + SPARE, dim=1)
        least = top.values[:, k - 1] - 2 * errors[rows]
        missing = (top.values[:, -1] >= least).nonzero().squeeze(1)
        values[rows], indices[rows] = (part.cpu() for part in _ordered(factors, rows, wide_columns, top.indices, k))
        if len(missing):
            row, column = (products.index_select(0, missing) >= least[missing, None]).nonzero().unbind(1)
            best = Best(k=k, device=products.device, ordered_keys=True)
            best.merge(row, column, factors.entries(missing[row] + start, column))
            places = missing.cpu() + start
            values[places], indices[places] = best.value.view(-1, k).cpu(), best.key.view(-1, k).cpu()
    return values, indices


def _ordered(factors: Factors, rows: slice, wide_columns: Tensor, candidates: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best of every row's candidates `[row, candidate]`: float64 values times the sign, and their columns."""
    terms = wide_columns.index_select(0, candidates.flatten()).unflatten(0, candidates.shape)
    terms.mul_(factors.rows[rows].double()[:, None])
    entries = sum_of_terms(terms)
    if factors.sign < 0:
        entries = entries.neg_().add_(0.0)
    values, order = entries.sort(dim=1, descending=True)
    if bool((values[:, 1:] == values[:, :-1]).any()):  # ties go by column
        candidates, by_column = candidates.sort(dim=1)
        values, order = entries.gather(1, by_column).sort(dim=1, descending=True, stable=True)
    return values[:, :k], candidates.gather(1, order[:, :k])
