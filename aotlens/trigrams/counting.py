"""The counts of `source … destination` in text, and of what follows it, window by window.

`source … destination` occurs at position i of a window where token i is the destination and some earlier token of the
same window, the start token included, is the source. The out is token i + 1. A position counts once, however many
copies of the source precede it. The start token itself is no destination: text did not put it there, and what follows
it is wherever the window was cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int64

from aotlens.results import Result
from aotlens.trigrams.strata import Strata, StrataCounter, window_sums
from aotlens.trigrams.text import Windows


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

    Time of a batch: its positions that hold a destination, once for every row with that destination; memory likewise,
    and rows × windows; and 40 bytes a row and stratum that holds its destination.
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

        def per_window(chosen: np.ndarray) -> np.ndarray:
            cells = row[chosen] * n_windows + window[chosen]
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
