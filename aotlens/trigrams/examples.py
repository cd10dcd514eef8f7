"""A few real occurrences of every row, to be read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from aotlens.results import Result
from aotlens.trigrams.counting import Occurrences
from aotlens.trigrams.measuring import Measured


@dataclass(frozen=True, kw_only=True, eq=False)
class Example(Result):
    """One occurrence: the window's tokens up to the one that came next."""

    row: int
    """The row of the table, from 0."""
    tokens: Int64[np.ndarray, " pos"]
    """The tokens from the start token; the destination is the last but one."""
    source_position: int
    """The source's last copy."""
    destination_position: int
    follows: bool
    """Whether the last token is the row's out."""
    attention: float | int
    """The head's, from the destination to all copies of the source."""


class ExampleKeeper:
    """Keeps the first `limit` occurrences of every row that the out follows, and as many that it does not."""

    def __init__(self, n_rows: int, limit: int) -> None:
        self._limit = limit
        self._kept: dict[bool, list[list[Example]]] = {
            follows: [[] for _ in range(n_rows)] for follows in (True, False)
        }
        self._counts = {follows: np.zeros(n_rows, dtype=np.int64) for follows in (True, False)}

    def add(self, tokens: np.ndarray, found: Occurrences, measured: Measured) -> None:
        for follows in (True, False):
            counts = self._counts[follows]
            wanted = np.flatnonzero((found.follows == follows) & (counts[found.row] < self._limit))
            wanted = wanted[np.argsort(found.row[wanted], kind="stable")]
            row = found.row[wanted]
            nth = np.arange(len(row)) - np.searchsorted(row, row)  # of its row, in this batch
            for i in wanted[nth < (self._limit - counts[row])]:
                window, position = int(found.window[i]), int(found.position[i])
                self._kept[follows][found.row[i]].append(
                    Example(
                        row=int(found.row[i]),
                        tokens=tokens[window, : position + 2].copy(),
                        source_position=int(measured.last_source[i]),
                        destination_position=position,
                        follows=follows,
                        attention=float(measured.attention[i]),
                    )
                )
                counts[found.row[i]] += 1

    def examples(self) -> tuple[Example, ...]:
        """Return the examples by row; at most `limit` each, those that the out follows first."""
        rows = zip(self._kept[True], self._kept[False], strict=True)
        return tuple(example for true, false in rows for example in [*true, *false][: self._limit])
