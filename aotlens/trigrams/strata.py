"""A row's counts stratum by stratum, collected while text is read.

In stratum b of n_b windows a row's destination stands at m_b places; before x_b of them the source was seen, y_b of
them the row's out follows, and a_b are both. What a variance between the windows w of a stratum needs is kept summed:

    v_w = (x_b/m_b)(1 − x_b/m_b) · r_w² · n_b/(n_b − 1),    r_w = y_w − m_w·y_b/m_b        (0 where n_b = 1)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from aotlens.results import Result

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
