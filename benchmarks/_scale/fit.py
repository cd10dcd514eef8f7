"""Cost against one size: y = a + b · x^p with a ≥ 0, by least squares of log y, and intervals by profile.

**Why a constant.** Small sizes cost what a call costs, whatever is computed; without `a` they bend the line and pull
p down. At the largest size at most half of y may be constant, or every p would fit what hardly grows: a cost that does
not grow comes out as p ≈ 0.

**Interval.** With S(p) the least sum of squared residuals of log y at a given p, the interval is every p with
S(p) ≤ S_min · (1 + t² / (n − 3)), t the quantile of Student's distribution with n − 3 degrees of freedom, as in linear
least squares, though a and p together are not linear. Any other number that the curve says, as y at another x, has the
range that it takes over the curves within the same bound. The unit is the point: residuals must be independent between
sizes and of one spread in logarithms, and the law must be of that form over the range. What is extrapolated assumes
that it goes on.

Everything is evaluated on a grid of (p, a ÷ b) around the best curve, which `scipy.optimize` finds; b is then known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import scipy.stats

#: Exponents that are looked at.
EXPONENTS = (-0.5, 6.0)
#: Three numbers are fitted; fewer points than this leave no interval worth the name.
LEAST_POINTS = 5
#: The least spread of log y that an interval counts with: clocks and pages are no finer.
LEAST_SPREAD = 1e-3
_EVERY_EXPONENT = np.linspace(*EXPONENTS, 261)
#: a over what the largest size costs beyond it: at most as much again.
_EVERY_SHARE = np.append(0.0, np.geomspace(1e-8, 1, 120))


@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """The fitted curve and all others that the points allow."""

    exponent: float
    low: float
    high: float
    constant: float
    """The constant a, in y's unit."""
    scale: float
    """The scale b, y's unit over x's to the power of the exponent."""
    n_points: int
    _exponents: np.ndarray
    """The exponents of the curves that are allowed, with `_ratios` a ÷ b and `_log_scales` log b."""
    _ratios: np.ndarray
    _log_scales: np.ndarray

    def at(self, x: float) -> float:
        """Return y at one size."""
        return float(self.constant + self.scale * x**self.exponent)

    def log_interval(self, value: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> tuple[float, float]:
        """Return the range of what `value(p, a ÷ b, log b)` gives over all curves that are allowed."""
        values = value(self._exponents, self._ratios, self._log_scales)
        return float(values.min()), float(values.max())

    def log_of(self, x: float) -> tuple[float, float, float]:
        """Return log y at one size, and its interval."""
        low, high = self.log_interval(lambda p, c, log_b: log_b + np.log(c + x**p))
        middle = float(np.log(self.at(x)))
        return middle, min(low, middle), max(high, middle)

    def log_growth(self, start: float, end: float) -> tuple[float, float, float]:
        """Return log (y at `end` ÷ y at `start`), and its interval."""
        low, high = self.log_interval(lambda p, c, _: np.log(c + end**p) - np.log(c + start**p))
        middle = float(np.log(self.at(end) / self.at(start)))
        return middle, min(low, middle), max(high, middle)


def fit_power(x: Sequence[float], y: Sequence[float], confidence: float = 0.95) -> Curve | None:
    """Fit the curve through the points, or None for fewer than five of them.

    Raises `ValueError` for sizes or costs that are not positive, and for as many x as not y.
    """
    if len(x) != len(y) or min([*x, *y], default=1) <= 0:
        raise ValueError(f"fit_power: expected as many positive costs as sizes, got {list(x)} and {list(y)}.")
    return None if len(set(x)) < LEAST_POINTS else _fit(tuple(x), tuple(y), confidence)


@functools.lru_cache(maxsize=1024)  # every table of a page asks for the same ones
def _fit(x: tuple[float, ...], y: tuple[float, ...], confidence: float) -> Curve:
    unit = float(np.exp(np.mean(np.log(x))))  # the middle of the sizes: x^p stays within float64
    sizes, costs = np.log(np.asarray(x, dtype=float) / unit), np.log(np.asarray(y, dtype=float))

    def residuals(p: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log y − log(c + x^p) less its mean `[..., point]`, and the mean, which is log b."""
        difference = costs - np.log(c[..., None] + np.exp(p[..., None] * sizes))
        return difference - difference.mean(-1, keepdims=True), difference.mean(-1)

    def most_of(exponents: np.ndarray) -> np.ndarray:
        """Return x^p where it is largest."""
        return np.exp(np.maximum(exponents * sizes.min(), exponents * sizes.max()))

    def grid(exponents: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Give p, a ÷ b, the sum of squares and log b of each curve of the grid; `shares` are of a in the largest."""
        p, c = np.repeat(exponents, len(shares)), np.outer(most_of(exponents), shares).ravel()
        left, log_b = residuals(p, c)
        return p, c, (left**2).sum(-1), log_b

    p, c, squares, log_b = grid(_EVERY_EXPONENT, _EVERY_SHARE)
    best = int(squares.argmin())
    best_p, best_c, least = float(p[best]), float(c[best]), float(squares[best])
    start = np.array([best_p, np.log(max(best_c, 1e-9))])
    refined = scipy.optimize.least_squares(lambda v: residuals(v[:1], np.exp(v[1:]))[0][0], start)
    if 2 * refined.cost < least and np.exp(refined.x[1]) <= most_of(refined.x[0]):
        best_p, best_c, least = float(refined.x[0]), float(np.exp(refined.x[1])), float(2 * refined.cost)
    degrees = len(sizes) - 3
    reach = scipy.stats.t.ppf((1 + confidence) / 2, degrees) ** 2 / degrees
    bound = max(least, degrees * LEAST_SPREAD**2) * (1 + reach)
    # The coarse grid may miss a narrow valley, so that a wider bound chooses what is looked at closely.
    near = squares <= 9 * bound
    step = _EVERY_EXPONENT[1] - _EVERY_EXPONENT[0]
    exponents = np.linspace(min([best_p, *p[near]]) - step, max([best_p, *p[near]]) + step, 161)
    of_largest = np.append(c[near] / most_of(p[near]), best_c / most_of(best_p))
    shares = of_largest[of_largest > 0]
    fine = np.geomspace(max(1e-8, shares.min() / 1.2), min(1, shares.max() * 1.2), 120) if len(shares) else []
    p, c, squares, log_b = grid(exponents, np.append(0.0, fine))
    allowed = squares <= bound
    own = residuals(np.array([best_p]), np.array([best_c]))[1]
    p, c, log_b = np.append(p[allowed], best_p), np.append(c[allowed], best_c), np.append(log_b[allowed], own)
    # Back from sizes over `unit` to sizes: c + (x/u)^p = u^-p (c u^p + x^p).
    c, log_b = c * unit**p, log_b - p * np.log(unit)
    return Curve(
        exponent=float(best_p), low=float(p.min()), high=float(p.max()), constant=float(np.exp(log_b[-1]) * c[-1]),
        scale=float(np.exp(log_b[-1])), n_points=len(sizes), _exponents=p, _ratios=c, _log_scales=log_b,
    )  # fmt: skip
