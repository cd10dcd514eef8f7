"""Statistics of a few numbers, as scipy computes them, with what is undefined as NaN."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int


class Line(NamedTuple):
    """y ≈ intercept + slope · x, by least squares."""

    slope: float
    intercept: float
    r_squared: float


def rank_correlation(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float:
    """Spearman's rank correlation; NaN for fewer than two points, or where one of the two is constant."""
    import scipy.stats

    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(scipy.stats.spearmanr(x, y).statistic)


def fit_line(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> Line:
    """The least-squares line through the points whose y is a number; NaN for fewer than three of them.

    R² is NaN where all of these y are the same.
    """
    import scipy.stats

    known = np.isfinite(y)
    if known.sum() < 3:
        return Line(math.nan, math.nan, math.nan)
    fit = scipy.stats.linregress(x[known], y[known])
    r_squared = float(fit.rvalue**2) if np.ptp(y[known]) else math.nan
    return Line(float(fit.slope), float(fit.intercept), r_squared)


def wilson_interval(successes: int, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a share of n independent trials; NaN for none.

    Unlike share ± z standard errors it stays within 0 to 1 and is right near both: 0 of 5,153 gives 0 to 0.07%.
    Raises `ValueError` for more successes than trials.
    """
    import scipy.stats

    if not 0 <= successes <= n:
        raise ValueError(f"expected from 0 to n = {n} successes, got {successes}.")
    if n == 0:
        return math.nan, math.nan
    interval = scipy.stats.binomtest(successes, n).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def mcnemar_p(left: Bool[np.ndarray, " n"], right: Bool[np.ndarray, " n"]) -> float:
    """McNemar's exact p-value of two answerers who got the same n questions, right (True) or wrong.

    Of the questions that one of both alone got right, under the null each is as likely to be the one's as the other's:
    two-sided binomial. 1 where there are none. Questions are what varies, and are taken as independent.
    """
    import scipy.stats

    only_left, only_right = int((left & ~right).sum()), int((right & ~left).sum())
    if only_left + only_right == 0:
        return 1.0
    return float(scipy.stats.binomtest(only_left, only_left + only_right).pvalue)


def bootstrap_interval(
    statistic: Callable[[Int[np.ndarray, " n"]], float],
    n: int,
    *,
    confidence: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """The percentile bootstrap interval of a statistic of n independent units, which gets the drawn units' indices.

    Draws for which it is NaN (a mean over units of a kind, where none was drawn) are left out; both ends are NaN where
    it is for all. The units are what varies: heads, sequences or seeds, as the caller has them.
    """
    import scipy.stats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.stats.DegenerateDataWarning)  # its own interval is NaN with a NaN draw
        result = scipy.stats.bootstrap(
            (np.arange(n),), statistic, n_resamples=n_resamples, vectorized=False, method="percentile",
            rng=np.random.default_rng(seed),
        )  # fmt: skip
    drawn = result.bootstrap_distribution
    known = drawn[np.isfinite(drawn)]
    if not len(known):
        return math.nan, math.nan
    low, high = np.quantile(known, ((1 - confidence) / 2, (1 + confidence) / 2))
    return float(low), float(high)


#: Units from which a percentile bootstrap of sums without long tails covers what it says; of fewer it is too short.
_ENOUGH_TO_RESAMPLE = 30


def ratio_intervals(
    sums: Float[np.ndarray, "row n"],
    counts: Float[np.ndarray, "row n"] | Float[np.ndarray, " n"],
    *,
    confidence: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 0,
) -> Float[np.ndarray, "row 2"]:
    """Intervals of Σ sums ÷ Σ counts, one a row, over the same n independent units.

    A score that is a mean over the queries of several sequences is such a ratio. From 30 units on whose counts are not
    0 it is the percentile bootstrap: all rows share the draws, and draws whose counts are 0 are left out. Of fewer, on
    which that is too short (two units: a 95% interval that covers in half of all cases), it is Student's t of the
    linearised ratio r = S ÷ C: r ± t √(m ÷ (m − 1) Σ (sᵢ − r cᵢ)²) ÷ |C|, m being the units with counts. NaN where m is
    below 2. Either is too short for sums with long tails, such as squared errors
    (`aotlens.evaluate.RegressionErrors.bands` says by how much).
    """
    import scipy.stats

    n, each = sums.shape[1], np.broadcast_to(counts, sums.shape)
    known = (each != 0).sum(1)
    short = _linearised_intervals(sums, each, known, confidence)
    if n < _ENOUGH_TO_RESAMPLE or known.max(initial=0) < _ENOUGH_TO_RESAMPLE:
        return short

    def ratios(drawn: np.ndarray, axis: int) -> np.ndarray:
        times = np.zeros((len(drawn), n))
        np.add.at(times, (np.arange(len(drawn))[:, None], drawn), 1.0)
        totals = counts @ times.T
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(totals > 0, (sums @ times.T) / totals, np.nan)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy's own interval is NaN, with a warning, where a draw is
        result = scipy.stats.bootstrap(
            (np.arange(n),), ratios, n_resamples=n_resamples, vectorized=True, axis=-1, batch=max(1, 2_000_000 // n),
            method="percentile", rng=np.random.default_rng(seed),
        )  # fmt: skip
        ends = ((1 - confidence) / 2, (1 + confidence) / 2)
        resampled = np.nanquantile(result.bootstrap_distribution, ends, axis=-1).T
    return np.where((known >= _ENOUGH_TO_RESAMPLE)[:, None], resampled, short)


def _linearised_intervals(
    sums: Float[np.ndarray, "row n"],
    counts: Float[np.ndarray, "row n"],
    known: Int[np.ndarray, " row"],
    confidence: float,
) -> Float[np.ndarray, "row 2"]:
    """Student's t of the first-order residuals sᵢ − r cᵢ; NaN below two units."""
    import scipy.stats

    with np.errstate(invalid="ignore", divide="ignore"):
        total = counts.sum(1)
        ratio = sums.sum(1) / total
        squares = np.square(sums - ratio[:, None] * counts).sum(1) * known / (known - 1.0)
        reach = scipy.stats.t.ppf((1 + confidence) / 2, np.maximum(known - 1, 1)) * np.sqrt(squares) / abs(total)
    reach = np.where((known >= 2) & np.isfinite(ratio), reach, np.nan)
    return np.stack([ratio - reach, ratio + reach], axis=1)
