"""A whole circuit in one small picture, and exact pieces of it.

A full circuit at V = 48,262 has 2.3 billion entries. `block_overview` divides it into at most n × n blocks and keeps
one number of each; `exact_block` gives every entry of a few rows and columns, in float64; `circuit_map` and
`circuit_block` give some rows and columns by name: those of a list, of the largest entries, or of a block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int
from torch import Tensor

from aotlens.circuits.circuit import Circuit, Kind, Lines
from aotlens.circuits.extremes import ExtremeEntries, extreme_entries, extremes_within
from aotlens.circuits.factored import FactoredMatrix
from aotlens.circuits.factors import check
from aotlens.conventions import require_choice, require_whole
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

Statistic = Literal["extreme", "mean"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Overview(Result):
    """One number of each block of a matrix, `values[row block, column block]`.

    Row block i holds the rows from i · row_size up to, not including, (i + 1) · row_size; the last one may be smaller.
    """

    statistic: Statistic
    """`"extreme"`: the entry of the block that is largest in magnitude, with its sign. `"mean"`: the block's mean."""
    values: Float32[np.ndarray, "row_block column_block"]
    row_size: int
    column_size: int
    n_rows: int
    n_columns: int
    unit: str = ""
    """The unit of a circuit's entries."""
    first_rows: Lines | None = None
    """The first row of each row block of a circuit."""
    first_columns: Lines | None = None

    @property
    def headline(self) -> str:
        block = self.extreme_block()
        return f"{self.n_rows:,} × {self.n_columns:,}, largest in block {block}: {self.values[block]:.3g}"

    def sentences(self) -> str:
        """Return what a number of the overview is."""
        entries = f"{self.n_rows:,} × {self.n_columns:,} entries"
        if self.row_size == self.column_size == 1:
            return f"Every one of the {entries}."
        statistic = "its entry largest in size, with its sign" if self.statistic == "extreme" else "its mean"
        return f"A pixel is a block of {self.row_size} × {self.column_size} of the {entries}, shown by {statistic}."

    def rows(self, block: int) -> range:
        """Return the matrix's rows in a row block."""
        return range(block * self.row_size, min((block + 1) * self.row_size, self.n_rows))

    def columns(self, block: int) -> range:
        """Return the matrix's columns in a column block."""
        return range(block * self.column_size, min((block + 1) * self.column_size, self.n_columns))

    def extreme_block(self) -> tuple[int, int]:
        """Return the block whose number is largest in magnitude, the first of equals."""
        row, column = np.unravel_index(np.abs(self.values).argmax(), self.values.shape)
        return int(row), int(column)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a block: its first and last row and column, and its number by the name of the statistic."""
        i, j = np.indices(self.values.shape).reshape(2, -1)
        columns: dict[str, np.ndarray] = {}
        rows, columns_of = (i, self.row_size, self.n_rows), (j, self.column_size, self.n_columns)
        for name, (number, size, n) in {"row": rows, "column": columns_of}.items():
            columns |= {f"first_{name}": number * size, f"last_{name}": np.minimum((number + 1) * size, n) - 1}
        return data_frame({**columns, self.statistic: self.values.ravel().astype(np.float64)})


@torch.no_grad()
def block_overview(
    circuit: FactoredMatrix, n_blocks: int = 256, statistic: str = "extreme", *, max_bytes: int = 128 * 10**6
) -> Overview:
    """Reduce A @ B, which is never formed, to at most `n_blocks` × `n_blocks` numbers that stand for all of it.

    `"extreme"` keeps, of each block, the entry largest in magnitude: a single large entry among millions stays
    visible, where a mean would fade it. `"mean"` is mean(A's rows) · mean(B's columns), a product of the factors alone.

    Time: "extreme" rows · columns · inner multiplications in float32, with one pass over the products; "mean" one pass
    over the factors. Memory: strips of rows of at most `max_bytes`.

    Raises `ValueError` for a batch of matrices, an empty one, factors or products that are not finite, `n_blocks` below
    1, or another statistic.
    """
    check(circuit)
    require_whole("n_blocks", n_blocks, 1)
    n_rows, n_columns = circuit.A.shape[0], circuit.B.shape[1]
    row_size, column_size = -(-n_rows // n_blocks), -(-n_columns // n_blocks)
    if require_choice("statistic", statistic, ("extreme", "mean")) == "extreme":
        dtype = torch.promote_types(torch.promote_types(circuit.A.dtype, circuit.B.dtype), torch.float32)
        values = _extremes(circuit.A.to(dtype), circuit.B.to(dtype), row_size, column_size, max_bytes)
    else:
        values = _block_means(circuit.A, row_size) @ _block_means(circuit.B.T, column_size).T
    values = values.cpu().float()
    if not bool(values.isfinite().all()):
        raise ValueError("block_overview: entries are too large for float32; scale the factors down.")
    named: dict[str, Any] = {}
    if isinstance(circuit, Circuit):
        first_rows, first_columns = range(0, n_rows, row_size), range(0, n_columns, column_size)
        named = {"unit": circuit.quantity, "first_rows": circuit.lines("left", first_rows),
                 "first_columns": circuit.lines("right", first_columns)}  # fmt: skip
    return Overview(
        statistic="extreme" if statistic == "extreme" else "mean",
        values=values.numpy(),
        row_size=row_size,
        column_size=column_size,
        n_rows=n_rows,
        n_columns=n_columns,
        **named,
    )


@torch.no_grad()
def exact_block(
    circuit: FactoredMatrix, rows: Int[Tensor, " row"], columns: Int[Tensor, " column"]
) -> Float64[np.ndarray, "row column"]:
    """Return the entries of these rows and columns, each a float64 dot product, on the CPU."""
    A = circuit.A.detach()[rows.to(circuit.A.device)].cpu().double()
    B = circuit.B.detach()[:, columns.to(circuit.B.device)].cpu().double()
    return (A @ B).numpy()


def _extremes(A: Tensor, B: Tensor, row_size: int, column_size: int, max_bytes: int) -> Tensor:
    # Zeros at the end make whole blocks, and are never larger in magnitude than what is there.
    B = torch.nn.functional.pad(B, (0, -B.shape[1] % column_size))
    at_once = max(1, max_bytes // (2 * B.shape[1] * B.element_size()))  # rows: a product, and room for its extremes
    whole_blocks = at_once // row_size * row_size
    extremes = []
    for part in A.split(whole_blocks or row_size):
        most, least = None, None
        for rows in part.split(whole_blocks or at_once):
            high, low = _row_block_extremes(rows, B, min(row_size, whole_blocks or len(rows)), column_size)
            most = high if most is None else torch.maximum(most, high)
            least = low if least is None else torch.minimum(least, low)
        assert most is not None and least is not None
        extremes.append(torch.where(most >= -least, most, least))
    return torch.cat(extremes)


def _row_block_extremes(rows: Tensor, B: Tensor, row_size: int, column_size: int) -> tuple[Tensor, Tensor]:
    rows = torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % row_size))
    blocks = (rows @ B).unflatten(1, (-1, column_size)).unflatten(0, (-1, row_size))
    return blocks.amax((1, 3)), blocks.amin((1, 3))


def _block_means(rows: Tensor, size: int) -> Tensor:
    """The mean of every `size` rows, in float64, `[block, inner]`."""
    return torch.stack([part.cpu().double().mean(0) for part in rows.split(size)])


#: The number of entries at either end from which a map's rows and columns are taken, and of these rows and columns.
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
        i, j = np.indices(self.values.shape).reshape(2, -1)
        columns = {
            "row": self.rows.ids[i], "row_label": [self.rows.labels[place] for place in i],
            "column": self.columns.ids[j], "column_label": [self.columns.labels[place] for place in j],
            self.unit.replace(" ", "_"): self.values.ravel(),
        }  # fmt: skip
        return data_frame(columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class CircuitBlock(Result):
    """One block of a circuit's overview: its entries by size, and a map of it."""

    block: tuple[int, int]
    """The indices of the row block and the column block."""
    first: bool
    """Whether none was asked for: then it is the block of the largest entry."""
    around: bool
    """Whether the block is so small that the map includes what is around it."""
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
    at_rows = list(dict.fromkeys(circuit.place("left", row) for row in rows))
    at_columns = list(dict.fromkeys(circuit.place("right", column) for column in columns))
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
    """Return a block of an overview of the same circuit, the one of the largest entry in size by default: its k
    largest and k smallest entries, and a map of at most n rows and columns.

    A block of fewer than n ÷ 2 rows or columns is extended by what is around it. Raises `ValueError` for a block that
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


def _largest_of(circuit: Circuit, lines: Sequence[int], n: int, of: Literal["rows", "columns"]) -> list[int]:
    """Find the places of some lines' largest entries in size, a few of each."""
    n_each = max(1, -(-n // len(lines)))
    places: list[int] = []
    for line in lines:
        rows, columns = ([line], None) if of == "columns" else (None, [line])
        largest = extremes_within(circuit, rows, columns, n_each)
        side = largest.columns if of == "columns" else largest.rows
        places += side.places[largest.by_size()][:n_each].tolist()
    return _distinct(places, max(n, len(lines)))


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
