"""A law with the machine's own rates: cost = Σ rate · term, rates ≥ 0, fitted to every measured point at once.

The terms are the law's (`laws.py`), and two that are none of the algorithm's: a constant, and one a head, for what
calls cost. Relative errors are squared, so that small points count as much as large ones.

**Interval.** Points are drawn anew with replacement and the rates fitted again, 400 times; each fit's cost is
multiplied by one of the points' own ratios of measured to fitted, drawn at random; so the interval is of a new
measurement, not of the curve. The unit is the point. What no point can tell, as a rate that sinks once a cache is too
small, is not in it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import scipy.optimize

_DRAWS = 400


@dataclass(frozen=True, kw_only=True, eq=False)
class Rates:
    """Seconds (or bytes) for one of each term, and what else the points allow."""

    values: np.ndarray
    draws: np.ndarray
    """The draws of the values, `[draw, term]`."""
    ratios: np.ndarray
    """Measured ÷ fitted of points drawn at random, `[draw]`, further from 1 by what fitting so many rates hides."""

    def cost(self, terms: tuple[float, ...]) -> tuple[float, float, float]:
        """Return the cost at other terms, with its 95% interval."""
        value = float(self.values @ terms)
        low, high = np.quantile(self.draws @ np.asarray(terms) * self.ratios, (0.025, 0.975))
        return value, min(float(low), value), max(float(high), value)


@functools.lru_cache(maxsize=256)
def fit_rates(terms: tuple[tuple[float, ...], ...], costs: tuple[float, ...]) -> Rates | None:
    """Fit the rates of the points' terms, `[point, term]`, or None for fewer points than terms and three more.

    Raises `ValueError` for costs that are not positive.
    """
    if min(costs, default=1) <= 0:
        raise ValueError(f"fit_rates: expected positive costs, got {min(costs)}.")
    if not terms or len(costs) < len(terms[0]) + 3:
        return None
    relative = np.array(terms) / np.array(costs)[:, None]
    sizes = relative.max(0)
    relative = relative / np.where(sizes > 0, sizes, 1.0)  # columns of one size, for the solver's sake
    generator = np.random.default_rng(0)

    def solve(rows: np.ndarray) -> np.ndarray:
        solution, _ = scipy.optimize.nnls(relative[rows], np.ones(len(rows)))
        # Scatter makes the least squares of fitted ÷ measured too small: its logarithm is 0 on average instead.
        return np.asarray(solution * np.exp(-np.log(relative[rows] @ solution).mean()))

    best = solve(np.arange(len(costs)))
    residuals = -np.log(relative @ best) * np.sqrt(len(costs) / max(1, len(costs) - np.count_nonzero(best)))
    chosen = generator.integers(len(costs), size=(_DRAWS, len(costs)))
    scale = np.where(sizes > 0, sizes, np.inf)
    return Rates(
        values=best / scale,
        draws=np.stack([solve(rows) for rows in chosen]) / scale,
        ratios=np.exp(generator.choice(residuals, size=_DRAWS)),
    )
