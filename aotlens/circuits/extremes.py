"""The largest and the smallest entries of a circuit, or of one of its rows or columns, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.circuits.circuit import Circuit, Kind, Lines
from aotlens.circuits.factored import FactoredMatrix
from aotlens.circuits.rows import RowStatistics, above_row_level, row_statistics
from aotlens.circuits.topk import top_entries, top_per_row
from aotlens.conventions import minus, require_whole
from aotlens.results import Result, data_frame, describe

if TYPE_CHECKING:
    import pandas as pd

#: What can be compared along a column.
_COLUMN = {
    "qk": "Scores of different destinations can't be compared as they are: each destination's softmax ignores what all "
    "its sources have in common. Scores minus the row's log-mean-exp can.",
    "ov": "Minus row mean: what attending to the source does for this output rather than for all outputs.",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class ExtremeEntries(Result):
    """Entries of one circuit: first the largest, largest first, then the smallest, smallest first.

    `rows` and `columns` have a line for each entry. In a small part of a circuit an entry may be at both ends.
    """

    kind: Kind
    unit: str
    n_largest: int
    """The number of entries that are the largest; the rest are the smallest."""
    rows: Lines
    columns: Lines
    values: Float64[np.ndarray, " entry"]
    above_row: Float64[np.ndarray, " entry"]
    """QK: entry − log-mean-exp of its row, in nats. OV: entry − mean of its row."""
    row_statistics: RowStatistics | None
    """The statistics of the one row, where the entries are of one row."""

    @property
    def headline(self) -> str:
        row, column = self.rows.labels[0], self.columns.labels[0]
        return f"largest [{row}] × [{column}] with {self.values[0]:+.4g} {self.unit}"

    def sentences(self) -> str:
        """Return the level and spread of one row, what can be compared in one column, or the largest entry of all."""
        statistics = self.row_statistics
        if statistics is None:
            is_column = len(set(self.columns.places.tolist())) == 1 < self.columns.n
            return _COLUMN[self.kind] if is_column else super().sentences()
        if self.columns.n < 2:
            return ""
        numbers = [
            f"mean {minus(statistics.mean[0], '.2f')}", f"standard deviation {float(statistics.std[0]):.2f}",
            *([f"log-mean-exp {minus(statistics.log_mean_exp[0], '.2f')}"] if self.kind == "qk" else []),
        ]  # fmt: skip
        return f"Over all {self.columns.n:,} {self.columns.plural}: {', '.join(numbers)} {self.unit}."

    @property
    def largest_row(self) -> int:
        """The id of the row of the largest entry."""
        return int(self.rows.ids[0])

    @property
    def largest_column(self) -> int:
        """The id of the column of the largest entry."""
        return int(self.columns.ids[0])

    def by_size(self) -> Int64[np.ndarray, " distinct"]:
        """Sort the places of all distinct entries in the lists above, the largest in magnitude first."""
        order = np.argsort(-np.abs(self.values), kind="stable")
        pairs = np.stack([self.rows.places[order], self.columns.places[order]])
        _, first = np.unique(pairs, axis=1, return_index=True)
        return order[np.sort(first)]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per entry: end, rank, row, row_label, column, column_label, the value by its unit,
        above_its_row."""
        frame = self._frame(np.arange(len(self.values)))
        n_smallest = len(self.values) - self.n_largest
        frame.insert(0, "end", ["largest"] * self.n_largest + ["smallest"] * n_smallest)
        frame.insert(1, "rank", [*range(1, self.n_largest + 1), *range(1, n_smallest + 1)])
        return frame

    def size_frame(self) -> pd.DataFrame:
        """Return the frame of the entries by size, without `end`."""
        frame = self._frame(self.by_size())
        frame.insert(0, "rank", range(1, len(frame) + 1))
        return frame

    def _frame(self, places: Sequence[int] | np.ndarray) -> pd.DataFrame:
        columns = {
            "row": self.rows.ids[places], "row_label": [self.rows.labels[place] for place in places],
            "column": self.columns.ids[places], "column_label": [self.columns.labels[place] for place in places],
            self.unit.replace(" ", "_"): self.values[places], "above_its_row": self.above_row[places],
        }  # fmt: skip
        return data_frame(columns)


def extreme_entries(
    circuit: Circuit, k: int = 20, *, row: int | str | None = None, column: int | str | None = None
) -> ExtremeEntries:
    """Return the k largest and the k smallest entries of the whole circuit, or of one row or one column, or all there
    are.

    A row or column is the text of a token, or the id of a token, position, direction or class. Exact, as `top_entries`.
    Raises `ValueError` for k below 1 and for a row or column that the circuit does not have.
    """
    rows = None if row is None else [circuit.place("left", row)]
    return extremes_within(circuit, rows, None if column is None else [circuit.place("right", column)], k)


@torch.no_grad()
def extremes_within(
    circuit: Circuit, rows: Sequence[int] | None, columns: Sequence[int] | None, k: int
) -> ExtremeEntries:
    """Return the extreme entries of the rows and columns at some places of the circuit; None for all of them."""
    require_whole("k", k, 1)
    at_rows, at_columns = (
        torch.arange(n) if places is None else torch.tensor(list(places))
        for n, places in zip(circuit.shape, (rows, columns), strict=True)
    )
    A = circuit.A if rows is None else circuit.A[at_rows.to(circuit.A.device)]
    B = circuit.B if columns is None else circuit.B[:, at_columns.to(circuit.B.device)]
    part = FactoredMatrix(A, B)
    k = min(k, len(at_rows) * len(at_columns))
    ends = [top_entries(part, k, largest=largest) for largest in (True, False)]
    extreme_rows = at_rows[torch.cat([end.rows for end in ends])]
    extreme_columns = at_columns[torch.cat([end.columns for end in ends])]
    values = torch.cat([end.values for end in ends])
    return ExtremeEntries(
        kind=circuit.kind,
        unit=circuit.quantity,
        n_largest=k,
        rows=circuit.lines("left", extreme_rows.tolist()),
        columns=circuit.lines("right", extreme_columns.tolist()),
        values=values.numpy(),
        above_row=above_row_level(circuit, extreme_rows, values).numpy(),
        row_statistics=row_statistics(part) if len(at_rows) == 1 and columns is None else None,
    )


class StrongestRows(NamedTuple):
    """Rows, the sharpest first, and the largest entries of each, the largest first."""

    rows: Int64[Tensor, " row"]
    columns: Int64[Tensor, "row k"]
    values: Float64[Tensor, "row k"]
    """The entries of the circuit at these rows and columns."""
    relative: Float64[Tensor, "row k"]
    """The entries above the row's level: log-mean-exp of the row (QK, nats), mean of the row (OV, logits)."""

    def __repr__(self) -> str:
        return describe(self)


def strongest_rows(circuit: Circuit, among: Int64[Tensor, " candidate"], *, n: int = 8, k: int = 3) -> StrongestRows:
    """Find, of the rows `among` a circuit's, the `n` whose largest entry is furthest above its row's level.

    A QK row says what one destination looks for, an OV row what one source makes likelier; a softmax sees a QK row up
    to a constant, so rows are compared above their own levels (`above_row_level`). Over all rows of a vocabulary,
    tokens that hardly occur would come first: give those that do. Cost as `top_per_row` of these rows, and no more of
    the circuit is formed. Raises `ValueError` for no rows, and as `top_per_row`.
    """
    if not len(among):
        raise ValueError("expected some rows to choose among, got none.")
    device = circuit.A.device
    top = top_per_row(FactoredMatrix(circuit.A[among.to(device)], circuit.B), min(k, circuit.shape[1]))
    repeated = among.repeat_interleave(top.values.shape[1])
    relative = above_row_level(circuit, repeated, top.values.flatten()).view_as(top.values)
    order = relative[:, 0].argsort(descending=True, stable=True)[:n]
    return StrongestRows(among[order], top.indices[order], top.values[order], relative[order])
