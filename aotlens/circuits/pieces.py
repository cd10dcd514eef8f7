"""Some rows and columns of a circuit in full: given ones, those of its largest entries, or a block of an overview."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Float64

from aotlens.circuits.circuit import Circuit, Kind
from aotlens.circuits.extremes import ExtremeEntries, extreme_entries, extremes_within
from aotlens.circuits.labelled import Lines, place_of
from aotlens.circuits.overview import Overview, exact_block
from aotlens.conventions import require_whole
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

#: Entries at either end among which a map's rows and columns are found, and rows and columns that it has then.
N_ENTRIES, N_LINES = 100, 16


@dataclass(frozen=True, kw_only=True, eq=False)
class CircuitMap(Result):
    """The entries of some rows and columns of a circuit."""

    kind: Kind
    unit: str
    rows: Lines
    columns: Lines
    values: Float64[np.ndarray, "row column"]

    @property
    def headline(self) -> str:
        height, width = self.values.shape
        return f"{height} of {self.rows.n:,} rows, {width} of {self.columns.n:,} columns, in {self.unit}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row an entry: row, row_label, column, column_label, and the value by its unit."""
        import pandas as pd

        i, j = np.indices(self.values.shape).reshape(2, -1)
        columns = {
            "row": self.rows.ids[i], "row_label": [self.rows.labels[place] for place in i],
            "column": self.columns.ids[j], "column_label": [self.columns.labels[place] for place in j],
            self.unit.replace(" ", "_"): self.values.ravel(),
        }  # fmt: skip
        return pd.DataFrame(columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class CircuitBlock(Result):
    """One block of a circuit's overview: its entries by size, and a map of it."""

    block: tuple[int, int]
    """The indices of the row block and the column block."""
    first: bool
    """Whether none was asked for: then it is the block of the largest entry."""
    around: bool
    """Whether the block is so small that it is shown with what is around it."""
    spans: tuple[tuple[int, int], tuple[int, int]]
    """The first and the last row, the first and the last column."""
    map: CircuitMap
    """Every entry, or those of the rows and columns with the largest ones where there are more than `n`."""
    entries: ExtremeEntries

    @property
    def headline(self) -> str:
        (top, bottom), (left, right) = self.spans
        return f"rows {top} to {bottom}, columns {left} to {right}: {self.entries.headline}"

    def sentences(self) -> str:
        """Return which rows and columns the map has, and whether it has all entries."""
        where = ("", ", around the largest entry" if self.around else ", the block of the largest entry")[self.first]
        listed = "All of its entries" if self.whole else "Its rows and columns with the largest entries"
        rows, columns = (f"{first}–{last}" if last > first else f"{first}" for first, last in self.spans)
        return f"Rows {rows}, columns {columns}{where}. {listed}; below, by size."

    @property
    def whole(self) -> bool:
        """Whether the map has every entry."""
        sizes = (last - first + 1 for first, last in self.spans)
        return self.map.values.shape == tuple(sizes)

    def to_frame(self) -> pd.DataFrame:
        """Return one row an entry, the largest in size first, as `ExtremeEntries.size_frame`."""
        return self.entries.size_frame()


def circuit_map(
    circuit: Circuit,
    rows: Iterable[int | str] = (),
    columns: Iterable[int | str] = (),
    *,
    n: int = N_LINES,
    entries: ExtremeEntries | None = None,
) -> CircuitMap:
    """Return the entries of these rows and columns, each the text of a token or an id.

    Without columns, the n where these rows have their largest entries in size, some of each row; and the other way
    round. Without either, the n rows and columns of the largest entries of all, taken from `entries` where
    `extreme_entries` has found them before. Raises `ValueError` for a row or column that the circuit does not have.
    """
    require_whole("n", n, 1)
    at_rows, at_columns = (
        list(dict.fromkeys(place_of(side, each, size, circuit.tokenizer) for each in which))
        for side, size, which in zip((circuit.left, circuit.right), circuit.shape, (rows, columns), strict=True)
    )
    if at_rows and not at_columns:
        at_columns = _largest_of(circuit, at_rows, n, "columns")
    elif at_columns and not at_rows:
        at_rows = _largest_of(circuit, at_columns, n, "rows")
    elif not at_rows:
        largest = extreme_entries(circuit, N_ENTRIES) if entries is None else entries
        order = largest.by_size()
        at_rows, at_columns = _in_order(largest.rows, order, n), _in_order(largest.columns, order, n)
    return _map(circuit, at_rows, at_columns)


def circuit_block(
    circuit: Circuit,
    overview: Overview,
    block: Sequence[int] | None = None,
    *,
    n: int = N_LINES,
    k: int = N_ENTRIES,
) -> CircuitBlock:
    """Return a block of an overview of the same circuit, the one of the largest entry in size unless told: its k
    largest and k smallest entries, and a map of at most n rows and columns.

    A block of fewer than n ÷ 2 rows or columns is shown with what is around it. Raises `ValueError` for a block that
    the overview does not have.
    """
    require_whole("n", n, 1)
    if block is not None and not all(
        0 <= index < size for index, size in zip(block, overview.values.shape, strict=True)
    ):
        height, width = overview.values.shape
        raise ValueError(f"block={tuple(block)}: expected one of {height} × {width} blocks.")
    here = overview.extreme_block() if block is None else (int(block[0]), int(block[1]))
    exactly = overview.rows(here[0]), overview.columns(here[1])
    rows, columns = (_around(span, n, size) for span, size in zip(exactly, circuit.shape, strict=True))
    largest = extremes_within(circuit, rows, columns, k)
    order = largest.by_size()
    at_rows, at_columns = (
        list(span) if len(span) <= n else sorted(_distinct(side.places[order].tolist(), n))
        for span, side in ((rows, largest.rows), (columns, largest.columns))
    )
    return CircuitBlock(
        block=here,
        first=block is None,
        around=exactly != (rows, columns),
        spans=((rows[0], rows[-1]), (columns[0], columns[-1])),
        map=_map(circuit, at_rows, at_columns),
        entries=largest,
    )


def _map(circuit: Circuit, rows: Sequence[int], columns: Sequence[int]) -> CircuitMap:
    return CircuitMap(
        kind=circuit.kind,
        unit=circuit.quantity,
        rows=circuit.lines("left", rows),
        columns=circuit.lines("right", columns),
        values=exact_block(circuit, torch.tensor(rows), torch.tensor(columns)),
    )


def _largest_of(circuit: Circuit, given: Sequence[int], n: int, of: Literal["rows", "columns"]) -> list[int]:
    """Find the places of the given lines' largest entries in size, a few of each."""
    each = max(1, -(-n // len(given)))
    places: list[int] = []
    for line in given:
        rows, columns = ([line], None) if of == "columns" else (None, [line])
        largest = extremes_within(circuit, rows, columns, each)
        side = largest.columns if of == "columns" else largest.rows
        places += side.places[largest.by_size()][:each].tolist()
    return _distinct(places, max(n, len(given)))


def _in_order(lines: Lines, order: np.ndarray, n: int) -> list[int]:
    """The first n; tokens in the order of their entries, positions and the like in their own."""
    places = _distinct(lines.places[order].tolist(), n)
    return places if lines.of == "token" else sorted(places)


def _around(span: range, n: int, size: int) -> range:
    """The span, or, if it is less than half of n, n of `size` with it in their middle."""
    if len(span) >= n // 2:
        return span
    start = min(max(0, (span[0] + span[-1] + 1 - n) // 2), max(0, size - n))
    return range(start, min(size, start + n))


def _distinct(places: Iterable[int], n: int) -> list[int]:
    return list(dict.fromkeys(places))[:n]
