"""Rows of a head by their tokens, their kind and their verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int64

from aotlens.conventions import glyphs
from aotlens.results import Result
from aotlens.trigrams.find import is_like
from aotlens.trigrams.rows import TrigramRows

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class FilteredRows(Result):
    """Those rows of a head that match."""

    rows: TrigramRows
    """All rows."""
    numbers: Int64[np.ndarray, " matches"]
    """The matching ones; 0 is the first."""

    @property
    def headline(self) -> str:
        return f"{len(self):,} of {len(self.rows):,} rows match"

    def __len__(self) -> int:
        return len(self.numbers)

    def listed_frame(self) -> pd.DataFrame:
        """Return the matching rows of `TrigramRows.listed_frame`, with their ranks there."""
        return self.rows.listed_frame().iloc[self.numbers]

    def to_frame(self) -> pd.DataFrame:
        """Return the matching rows of `TrigramRows.to_frame`, with the others of their groups."""
        frame = self.rows.to_frame()
        return frame[frame.get("group", frame["rank"]).isin(self.numbers + 1)].reset_index(drop=True)


def filter_rows(
    rows: TrigramRows, *, source: str = "", destination: str = "", out: str = "", verdict: str = "", kind: str = ""
) -> FilteredRows:
    """Return the rows whose tokens contain these texts, or with `=` before a text are it (`tokens_like`), and that have
    this verdict and kind; an empty text matches all. Rows that were not checked have no verdict."""
    frame = rows.listed_frame()
    keep = np.ones(len(frame), dtype=bool)
    for column, text in {"source": source, "destination": destination, "out": out}.items():
        if text:
            keep &= np.array([is_like(glyphs(token), text) for token in frame[column]], dtype=bool)
    for column, word in {"verdict": verdict, "kind": kind}.items():
        if word:
            keep &= frame[column].eq(word).to_numpy() if column in frame else False
    return FilteredRows(rows=rows, numbers=np.flatnonzero(keep))
