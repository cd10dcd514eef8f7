"""Skip-trigrams that differ in one token only, folded beneath the best of them.

A head's best rows repeat themselves: the 500 best of a head that ends lines are one source and one out with 500
destinations. Folded, they are one row, and the next row says something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int64

from aotlens.results import Result
from aotlens.trigrams.table import TrigramTable

if TYPE_CHECKING:
    import pandas as pd

#: The tokens of a row, in which others may differ from it.
TOKENS: tuple[str, ...] = ("source", "destination", "out")


@dataclass(frozen=True, kw_only=True, eq=False)
class FoldedTrigrams(Result):
    """Groups of rows of a table, each beneath its best row."""

    table: TrigramTable
    """All rows, best first."""
    over: tuple[str, ...]
    """The tokens in which a folded row may differ from the row that it is folded beneath, one at a time."""
    beneath: Int64[np.ndarray, " rows"]
    """The row (0 is the first) that each row is folded beneath; its own number where it stands for a group."""

    @property
    def headline(self) -> str:
        return f"{len(self.table):,} rows in {len(self):,} groups; {self.table.headline}"

    def __len__(self) -> int:
        """The number of groups."""
        return len(self.best)

    @property
    def best(self) -> Int64[np.ndarray, " groups"]:
        """The rows that stand for groups, in the table's order."""
        return np.flatnonzero(self.beneath == np.arange(len(self.beneath)))

    @property
    def groups(self) -> TrigramTable:
        """The best row of every group, as a table of its own."""
        return self.table.take(self.best)

    def members(self, row: int) -> Int64[np.ndarray, " members"]:
        """Return the rows of the group that `row` stands for, itself first. Raises `ValueError` where it stands for
        none."""
        if not 0 <= row < len(self.beneath) or self.beneath[row] != row:
            raise ValueError(f"row {row}: expected one of the rows in `best`, which stand for groups.")
        return np.flatnonzero(self.beneath == row)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a group: its best row with that row's rank in the table, `rows`, the size of the group, and
        for every token in `over` the tokens that folded rows have in its place, best first (`other_sources`, …)."""
        best = self.best
        frame = self.table.to_frame().iloc[best].reset_index(drop=True)
        frame["rows"] = np.bincount(self.beneath, minlength=len(self.beneath))[best] if len(best) else best
        for name in self.over:
            ids, strings = getattr(self.table, name), getattr(self.table, f"{name}_token")
            others: dict[int, list[str]] = {int(row): [] for row in best}
            for row in np.flatnonzero(ids != ids[self.beneath]):
                others[int(self.beneath[row])].append(strings[row])
            frame[f"other_{name}s"] = [tuple(others[int(row)]) for row in best]
        return frame


def fold_rows(table: TrigramTable, over: str | Iterable[str] = ("source",)) -> FoldedTrigrams:
    """Fold every row beneath the first that differs from it in one token of `over` and stands for a group.

    Row by row from the best: a row that differs from no such row stands for a group itself. With `over="source"` these
    are the groups by (destination, out), with their sources folded; with `("source", "destination")` also rows with
    another destination for the same source and out are folded.

    A table of the k best triples (`skip_trigrams`) gives the same groups in the same order as any longer one would, as
    far as it goes: every group that is not listed begins after its last row. So do the rows that are left out of a
    group. Time and memory grow with rows. Raises `ValueError` for a name that is no token of a row, and for none.
    """
    names = (over,) if isinstance(over, str) else tuple(dict.fromkeys(over))
    unknown = [name for name in names if name not in TOKENS]
    if unknown or not names:
        raise ValueError(f"over={over!r}: expected one or more of {', '.join(map(repr, TOKENS))}.")
    rows = list(zip(table.source.tolist(), table.destination.tolist(), table.out.tolist(), strict=True))
    places = [TOKENS.index(name) for name in names]
    first: dict[tuple[int, tuple[int, ...]], int] = {}
    beneath = np.empty(len(rows), dtype=np.int64)
    for number, row in enumerate(rows):
        keys = [(place, row[:place] + row[place + 1 :]) for place in places]
        beneath[number] = min((first[key] for key in keys if key in first), default=number)
        if beneath[number] == number:
            first.update(dict.fromkeys(keys, number))
    return FoldedTrigrams(table=table, over=names, beneath=beneath)
