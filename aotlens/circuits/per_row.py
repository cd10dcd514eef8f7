"""The k largest entries of every row, streamed; `topk.py` has the public functions.

Rows are taken in strips. In a strip, for every row i with error bound e_ij (`factors.py`):

1. A pass over tiles keeps the largest product of every panel of 128 columns, and of every group of columns.
2. The k-th largest of (group maximum − its bound) is a number ℓ_i that at least k entries reach, exactly.
3. Panels whose maximum reaches ℓ_i − e_ij are computed again, for the rows that need them, and entries that reach
   ℓ_i − e_ij are candidates: every entry that is at least ℓ_i is among them, so the k best are.
4. Candidates are computed in float64 and ordered by that, ties by column.

A candidate too many costs one dot product; ties by the thousand make it slow, never wrong.

**Small matrices.** The tiles make a few calls of PyTorch for every panel; below some thousand columns those are most of
the work. There a strip of whole rows is multiplied at once, in float32, and its k + `SPARE` largest products are
candidates. With p the k-th of them and e the row's bound, at least k entries reach p − e exactly, and an entry that
does has a product of at least p − 2e. So if the last candidate's product is below that, no entry of the k best is
missing; if it is not (ties by the dozen), every product that reaches p − 2e is a candidate. Values and order are those
of the tiled search, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from aotlens.circuits.factors import Factors, sum_of_terms
from aotlens.circuits.tiles import MERGE_BYTES, Best, Tiles, block_maxima, n_workers, share, tile_sizes

#: Entries of a matrix up to which this is the shorter road (measured: `python -m benchmarks circuits`).
MOST_ENTRIES = 2**25
#: Candidates of a row beyond the k: they tell that nothing is missing.
SPARE = 2
#: Bytes of an entry of a strip, should every one be a candidate: its product, masks, indices, and what merging takes.
STRIP_ENTRY_BYTES = MERGE_BYTES + 48
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
    row_bytes = STRIP_ENTRY_BYTES * n_columns + (k + SPARE) * (24 * factors.inner + MERGE_BYTES)
    strip = min(n_rows, max(1, STRIP_ENTRIES // n_columns), max(0, left_bytes - shared) // row_bytes)
    return strip if strip >= min(n_rows, LEAST_STRIP) else 0


def best_by_strips(factors: Factors, k: int, strip: int) -> tuple[Tensor, Tensor]:
    """Find the best of each row as `best_per_row` does, by strips of `strip` whole rows."""
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


PANEL = 128
#: Columns of a group at most. Fewer groups are quicker to rank, more give a sharper ℓ.
GROUP = 512
#: Bytes of one entry of a recomputed panel if it becomes a candidate: product, mask, two indices and their copies.
PANEL_ENTRY_BYTES = 48


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Sizes that keep every buffer together within the memory that is left."""

    tile_rows: int
    tile_columns: int
    panel: int
    group: int
    strip: int
    recomputed_rows: int
    pool: int


def plan(shape: tuple[int, int], inner: int, k: int, max_bytes: int, kept_bytes: int, device: torch.device) -> Plan:
    """Return the sizes for a matrix of `shape`, where `kept_bytes` are taken by copies and results."""
    n_rows, n_columns = shape
    left = max_bytes - kept_bytes
    tile_rows, tile_columns = tile_sizes(n_rows, n_columns, left // 8, device=device)
    group = min(GROUP, tile_columns, 1 << (max(1, n_columns // (4 * k)).bit_length() - 1))
    panel = min(PANEL, group)
    n_panels, n_groups = -(-n_columns // panel), -(-n_columns // group)
    # Maxima; groups' bounds and the copies that ranking makes; thresholds; the row's best while merging.
    row_bytes = 4 * n_panels + 28 * n_groups + 64 + MERGE_BYTES * k
    strip = min(n_rows, left // 2 // row_bytes)
    recomputed_bytes = PANEL_ENTRY_BYTES * max(panel, min(PANEL, n_columns)) + 4 * inner  # a row, all of it candidates
    recomputed_rows = min(4096, left // 8 // recomputed_bytes)
    pool = left // 8 // MERGE_BYTES
    if min(strip, recomputed_rows, pool) < 1:
        least = 2 * row_bytes, 8 * recomputed_bytes, 8 * MERGE_BYTES
        raise ValueError(
            f"max_bytes={max_bytes} is too small for one row: copies of the factors and the result take {kept_bytes} "
            f"bytes, and a row needs {max(least)} more."
        )
    return Plan(
        tile_rows=min(tile_rows, strip), tile_columns=tile_columns, panel=panel, group=group, strip=strip,
        recomputed_rows=recomputed_rows, pool=pool,
    )  # fmt: skip


def best_per_row(factors: Factors, k: int, max_bytes: int) -> tuple[Tensor, Tensor]:
    """Return values (float64, times the sign) and columns of every row's k best `[rows, k]`, on the CPU; factors by
    row."""
    n_rows = factors.shape[0]
    device = factors.rows32.device
    held_bytes = factors.copied_bytes + 16 * n_rows * k
    small_strip = strip_rows(factors, k, max_bytes - held_bytes)
    if small_strip:
        return best_by_strips(factors, k, small_strip)
    n = n_workers(device, factors.shape[0] * factors.shape[1])
    try:
        sizes = plan(factors.shape, factors.inner, k, held_bytes + (max_bytes - held_bytes) // n, held_bytes, device)
    except ValueError:  # not enough for each, but perhaps for one
        n = 1
        sizes = plan(factors.shape, factors.inner, k, max_bytes, held_bytes, device)
    values = torch.empty(n_rows, k, dtype=torch.float64)
    columns = torch.empty(n_rows, k, dtype=torch.int64)
    strip = min(sizes.strip, -(-n_rows // n))

    def work(worker: int) -> None:
        search = _RowSearch(factors, k, sizes)
        for start in range(worker * strip, n_rows, n * strip):
            rows = slice(start, min(start + strip, n_rows))
            search.strip(rows, values[rows], columns[rows])

    share(work, n)
    return values, columns


class _RowSearch:
    """Buffers, allocated once, and the steps of the module's text."""

    def __init__(self, factors: Factors, k: int, sizes: Plan) -> None:
        self.factors, self.k, self.sizes = factors, k, sizes
        self.device = factors.rows32.device
        n_columns = factors.shape[1]
        buffer_rows = max(sizes.tile_rows, -(-sizes.recomputed_rows * PANEL // sizes.tile_columns))
        self.tiles = Tiles(rows=buffer_rows, columns=sizes.tile_columns, device=self.device)
        self.panel_maxima = self._empty(-(-n_columns // sizes.panel), sizes.strip)
        norms = factors.column_norms
        self.panel_norms = _maxima(norms[None], sizes.panel)[0].tolist()
        self.group_norms = _maxima(norms[None], sizes.group)[0].float()

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.float32, device=self.device)

    def strip(self, rows: slice, values: Tensor, columns: Tensor) -> None:
        """Write the k best of `rows` to `values` and `columns`."""
        self._maxima(rows)
        best = Best(k=self.k, device=self.device, ordered_keys=True)
        self._candidates(rows, self._reached(rows), best)
        # Every entry of a row of zeros is 0, and column order decides.
        zero = (self.factors.row_norms[rows] == 0).cpu()
        values[zero], columns[zero] = 0.0, torch.arange(self.k)
        values[~zero] = best.value.view(-1, self.k).cpu()
        columns[~zero] = best.key.view(-1, self.k).cpu()

    def _maxima(self, rows: slice) -> None:
        """Do step 1."""
        sizes, left = self.sizes, self.factors.rows32[rows]
        right = self.factors.columns32
        for c in range(0, len(right), sizes.tile_columns):
            b = c // sizes.panel
            for r in range(0, len(left), sizes.tile_rows):
                part = slice(r, r + sizes.tile_rows)
                maxima = self.tiles.maxima(left[part], right[c : c + sizes.tile_columns], sizes.panel)
                self.panel_maxima[b : b + maxima.shape[1], r : r + len(maxima)] = maxima.T

    def _reached(self, rows: slice) -> Tensor:
        """Do step 2: return ℓ of every row, float32."""
        n = rows.stop - rows.start
        errors, floors = self._errors(rows)
        groups = self._empty(len(self.group_norms), n)
        panels, per_group = self.panel_maxima[:, :n], self.sizes.group // self.sizes.panel
        for g, first in enumerate(range(0, len(panels), per_group)):
            torch.amax(panels[first : first + per_group], 0, out=groups[g])
        certain = groups.T.contiguous().addcmul_(errors[:, None], self.group_norms[None], value=-1)
        reached = certain.topk(self.k, dim=1, sorted=False).values.amin(1) - floors
        reached[self.factors.row_norms[rows] == 0] = torch.inf
        return reached

    def _errors(self, rows: slice) -> tuple[Tensor, Tensor]:
        """e_ij = errors[i] · (norm of column j) + floors[i]."""
        return (self.factors.error * self.factors.row_norms[rows]).float(), self.factors.floors[rows].float()

    def _candidates(self, rows: slice, reached: Tensor, best: Best) -> None:
        """Do steps 3 and 4."""
        sizes, left, right = self.sizes, self.factors.rows32[rows], self.factors.columns32
        errors, floors = self._errors(rows)
        pending: list[tuple[Tensor, Tensor]] = []
        n_pending = 0
        least = reached - floors
        # Panels that are narrower, for a large k, are taken together.
        step = max(1, PANEL // sizes.panel)
        for b in range(0, len(self.panel_norms), step):
            norm, maxima = max(self.panel_norms[b : b + step]), self.panel_maxima[b : b + step, : len(left)]
            threshold = torch.add(least, errors, alpha=-norm)
            hit = ((maxima[0] if len(maxima) == 1 else maxima.amax(0)) >= threshold).nonzero().squeeze(1)
            panel = right[b * sizes.panel : (b + step) * sizes.panel]
            for part in hit.split(sizes.recomputed_rows):
                product = self.tiles.product(left.index_select(0, part), panel)
                row, column = (product >= threshold.index_select(0, part)[:, None]).nonzero().unbind(1)
                if n_pending and n_pending + len(row) > sizes.pool:
                    self._rescore(rows, pending, best, least, floors)
                    pending, n_pending = [], 0
                    threshold = torch.add(least, errors, alpha=-norm)
                pending.append((part.index_select(0, row), column.add_(b * sizes.panel)))
                n_pending += len(row)
        self._rescore(rows, pending, best, least, floors)

    def _rescore(
        self, rows: slice, pending: list[tuple[Tensor, Tensor]], best: Best, least: Tensor, floors: Tensor
    ) -> None:
        """Order what is pending, and raise `least` where the k-th best is now known."""
        if not pending:
            return
        row, column = (torch.cat(parts) for parts in zip(*pending, strict=True))
        best.merge(row, column, self.factors.entries(row + rows.start, column))
        full, kth = best.last_of_full()
        known = self.factors.scaled(kth, full + rows.start).float()
        least[full] = torch.maximum(least[full], known - floors[full])


def _maxima(values: Tensor, block: int) -> Tensor:
    return values if block <= 1 else block_maxima(values, block)
