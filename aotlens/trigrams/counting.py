"""The counts of `source … destination` in text, and of what follows it, window by window and by strata.

`source … destination` occurs at position i of a window where token i is the destination and some earlier token of the
same window, the start token included, is the source. The out is token i + 1. A position counts once, however many
copies of the source precede it. The start token itself is no destination: text did not put it there, and what follows
it is wherever the window was cut.

In stratum b of n_b windows a row's destination stands at m_b places; before x_b of them the source was seen, y_b of
them the row's out follows, and a_b are both. What a variance between the windows w of a stratum needs is kept summed:

    v_w = (x_b/m_b)(1 − x_b/m_b) · r_w² · n_b/(n_b − 1),    r_w = y_w − m_w·y_b/m_b        (0 where n_b = 1)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from aotlens.results import Result
from aotlens.trigrams.text import Windows

# Σ over windows of: a, x, y, m; y², ym, m²; y⁴, y³m, y²m², ym³, m⁴.
_N_SUMS = 12


@dataclass(frozen=True, kw_only=True, eq=False)
class Strata(Result):
    """Cells, one a row and stratum that holds the row's destination, in order of the rows."""

    n_rows: int
    row: Int64[np.ndarray, " cells"]
    places: Int64[np.ndarray, " cells"]
    """m_b: places of the destination."""
    with_source: Int64[np.ndarray, " cells"]
    """x_b: those with the source before them."""
    followed: Int64[np.ndarray, " cells"]
    """y_b: those that the out follows."""
    both: Int64[np.ndarray, " cells"]
    """a_b: those with the source before them that the out follows."""
    variance: Float64[np.ndarray, " rows"]
    """Σ v_w over all windows."""
    variance_squared: Float64[np.ndarray, " rows"]
    """Σ v_w² over all windows."""

    def total(self, values: np.ndarray) -> Float64[np.ndarray, " rows"]:
        """Return Σ over the strata of every row."""
        return np.bincount(self.row, values, minlength=self.n_rows).astype(np.float64)  # whole numbers of no cells


def window_sums(both: np.ndarray, with_source: np.ndarray, followed: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the sums of every window alone, `[rows, windows, 12]`, to be added up by stratum, from its counts."""
    a, x, y, m = (counts.astype(np.float64) for counts in (both, with_source, followed, places))
    yy, ym, mm = y * y, y * m, m * m
    return np.stack([a, x, y, m, yy, ym, mm, yy * yy, yy * ym, ym * ym, ym * mm, mm * mm], axis=2)


class StrataCounter:
    """Adds up windows that come in order, by the number of their stratum; only the last stratum stays open."""

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self._open, self._open_windows = np.zeros((n_rows, _N_SUMS)), 0
        self._number: int | None = None
        self._cells: list[Int64[np.ndarray, "5 cells"]] = []
        self._variance, self._variance_squared = np.zeros(n_rows), np.zeros(n_rows)

    def add(self, sums: Float64[np.ndarray, "rows windows 12"], stratum: Int64[np.ndarray, " windows"]) -> None:
        first = np.flatnonzero(np.diff(stratum, prepend=stratum[0] - 1))
        added = np.add.reduceat(sums, first, axis=1)
        n_windows = np.diff(first, append=len(stratum))
        if stratum[0] == self._number:
            added[:, 0] += self._open
            n_windows[0] += self._open_windows
        else:
            self._close(self._open[:, None], np.array([self._open_windows]))
        self._close(added[:, :-1], n_windows[:-1])
        self._open, self._open_windows, self._number = added[:, -1], int(n_windows[-1]), int(stratum[-1])

    def strata(self) -> Strata:
        """Return the strata counted; nothing can be added any more."""
        self._close(self._open[:, None], np.array([self._open_windows]))
        self._open = np.zeros((self._n_rows, _N_SUMS))
        cells = np.concatenate([np.zeros((5, 0), dtype=np.int64), *self._cells], axis=1)
        row, places, with_source, followed, both = cells[:, np.argsort(cells[0], kind="stable")]
        return Strata(
            n_rows=self._n_rows,
            row=row,
            places=places,
            with_source=with_source,
            followed=followed,
            both=both,
            variance=self._variance,
            variance_squared=self._variance_squared,
        )

    def _close(self, sums: Float64[np.ndarray, "rows strata 12"], n_windows: Int64[np.ndarray, " strata"]) -> None:
        row, stratum = np.nonzero(sums[:, :, 3])
        n = n_windows[stratum]
        a, x, y, m, yy, ym, mm, y4, y3m, y2m2, ym3, m4 = sums[row, stratum].T
        p = y / m
        second = yy - 2 * p * ym + p**2 * mm
        # Where every window has the same share of the out, rounding leaves some 1e-16 of yy instead of 0.
        second = np.where(second <= 1e-14 * yy, 0.0, second)
        fourth = y4 - 4 * p * y3m + 6 * p**2 * y2m2 - 4 * p**3 * ym3 + p**4 * m4
        fourth = np.clip(fourth, second**2 / n, second**2)
        factor = np.where(n > 1, x / m * (1 - x / m) * n / np.maximum(n - 1, 1), 0.0)
        self._variance += np.bincount(row, factor * second, minlength=self._n_rows)
        self._variance_squared += np.bincount(row, factor**2 * fourth, minlength=self._n_rows)
        self._cells.append(np.stack([row, m, x, y, a]).astype(np.int64))


class Occurrences(NamedTuple):
    """Every place in a batch where a row's source … destination occurs; one row may have many, and they overlap."""

    window: Int64[np.ndarray, " n"]
    position: Int64[np.ndarray, " n"]
    """The position of the destination."""
    row: Int64[np.ndarray, " n"]
    """The row of the table."""
    follows: Bool[np.ndarray, " n"]
    """Whether the row's out comes next."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Counts(Result):
    """Places of every row in a text, in all and by strata."""

    pair: Int64[np.ndarray, " rows"]
    """Positions with source … destination."""
    pair_out: Int64[np.ndarray, " rows"]
    """Positions with source … destination that the out follows."""
    destination: Int64[np.ndarray, " rows"]
    """Positions with the destination, whatever precedes it."""
    destination_out: Int64[np.ndarray, " rows"]
    windows: Int64[np.ndarray, " rows"]
    """Windows with source … destination."""
    strata: Strata
    """The places by strata of 8 consecutive windows of a document."""
    documents: Strata
    """The places by whole documents."""


class TrigramCounter:
    """Counts rows (source, destination, out) over batches of windows.

    Time and memory of a batch: its positions with a destination, once for every row with that destination, and rows ×
    windows; and 40 bytes per row and stratum.
    """

    def __init__(self, source: np.ndarray, destination: np.ndarray, out: np.ndarray, d_vocab: int) -> None:
        self._out = out
        self._n_rows = len(source)
        by_destination = np.argsort(destination, kind="stable")
        self._rows = by_destination  # grouped by destination: rows of token t are at _first[t] : _first[t + 1]
        self._first = np.searchsorted(destination[by_destination], np.arange(d_vocab + 1))
        distinct, self._source_of_row = np.unique(source, return_inverse=True)
        self._n_sources = len(distinct)
        self._source_of_token = np.full(d_vocab, -1)
        self._source_of_token[distinct] = np.arange(len(distinct))
        self._windows = np.zeros(self._n_rows, dtype=np.int64)
        self._totals = np.zeros((4, self._n_rows), dtype=np.int64)
        self._strata, self._documents = StrataCounter(self._n_rows), StrataCounter(self._n_rows)

    def add(self, batch: Windows) -> Occurrences:
        """Count a batch, which goes on where the last one ended, and say where the pairs are."""
        tokens = batch.tokens
        n_windows, n_pos = tokens.shape
        here = tokens[:, :-1].ravel()
        n_rows_here = self._first[here + 1] - self._first[here]
        n_rows_here[:: n_pos - 1] = 0  # the start tokens
        n_rows_here[(np.arange(n_pos - 1) >= batch.length[:, None] - 1).ravel()] = 0  # no token follows
        occurrence = np.repeat(np.arange(len(here)), n_rows_here)
        within = np.arange(len(occurrence)) - np.repeat(np.cumsum(n_rows_here) - n_rows_here, n_rows_here)
        row = self._rows[self._first[here[occurrence]] + within]
        window, position = occurrence // (n_pos - 1), occurrence % (n_pos - 1)
        pair = self._first_source(tokens)[window, self._source_of_row[row]] < position
        follows = tokens[window, position + 1] == self._out[row]

        def per_window(mask: np.ndarray) -> np.ndarray:
            cells = row[mask] * n_windows + window[mask]
            return np.bincount(cells, minlength=self._n_rows * n_windows).reshape(self._n_rows, n_windows)

        everywhere = np.ones(len(row), dtype=bool)
        both, with_source, followed, places = map(per_window, (pair & follows, pair, follows, everywhere))
        self._totals += np.stack([part.sum(1) for part in (with_source, both, places, followed)])
        self._windows += (with_source > 0).sum(1)
        sums = window_sums(both, with_source, followed, places)
        self._strata.add(sums, batch.stratum)
        self._documents.add(sums, batch.document)
        return Occurrences(window[pair], position[pair], row[pair], follows[pair])

    def _first_source(self, tokens: np.ndarray) -> Int64[np.ndarray, "windows sources"]:
        """Find where each source first stands in each window (past the end where it does not)."""
        n_windows, n_pos = tokens.shape
        first = np.full((n_windows, self._n_sources), n_pos)
        source = self._source_of_token[tokens]
        window, position = np.nonzero(source >= 0)
        # The last of several assignments stands, so from the window's end to its beginning.
        window, position = window[::-1], position[::-1]
        first[window, source[window, position]] = position
        return first

    def counts(self) -> Counts:
        """Return the counts; nothing can be added any more."""
        pair, pair_out, destination, destination_out = self._totals
        return Counts(
            pair=pair,
            pair_out=pair_out,
            destination=destination,
            destination_out=destination_out,
            windows=self._windows,
            strata=self._strata.strata(),
            documents=self._documents.strata(),
        )
