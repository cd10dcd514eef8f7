"""What counts say about a row: lift, its interval, a test, a verdict.

With m positions of the destination in the text, y of them followed by the out, x of them preceded by the source and a
both, and a_w, x_w, y_w, m_w the same within window w:

    lift = (a / x) / (y / m)                                 P(out | source … destination) / P(out | destination)
    log lift ± t₀.₉₇₅ · s,  s² = Σ_w (a_w/a − x_w/x − y_w/y + m_w/m)²                  its 95% interval

The interval is the delta method's on the log scale, as Katz's for a ratio of proportions, with the two proportions
nested, and windows, not positions, taken as independent: a name that fills one page is one observation, not fifty.
t₀.₉₇₅ is Student's, with one degree of freedom less than there are windows where the out follows the pair. (Windows of
one document are not independent either; that is left out.)

Tests of lift = 1, one-sided, and the largest of their p-values counts:

    exact      Fisher's: a of x positions, drawn from m of which y are followed by the out. Right for small counts, but
               takes positions as independent.
    null       (a − x·y/m) / √((x/m)(1 − x/m) Σ_w r_w²), r_w = y_w − m_w·y/m, against Student's distribution with
               (Σ_w r_w²)² / Σ_w r_w⁴ degrees: as if the source stood in a share x/m of all windows with the destination
               at random. The degrees are how many windows there would be if all had the out equally often, so that a
               few windows full of it are as few as they are.
    sample     log lift / s against Student's distribution, as for the interval. Upwards only: downwards, where a few
               windows full of the out were missed, s is small just when lift is.

Verdict. `too rare`: fewer than 10 positions with source … destination, or in fewer than 5 windows, or fewer than 10
positions with the destination alone: where the source nearly always precedes it, there is nothing to compare with, and
lift is 1 by construction. `confirmed`: among the other rows of the table, the null is rejected at a false discovery
rate of 5% (Benjamini and Hochberg 1995). `not confirmed`: the rest; which is not the same as refuted. The tests are
one-sided, the interval is two-sided, so that of a confirmed row may hold 1. A row is asked what it says: that the out
becomes likelier where its effect is positive, less likely where it is negative (`TrigramTable.upwards`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64
from scipy import stats

from aotlens.trigrams.counting import Counts

MIN_OCCURRENCES = 10
MIN_WINDOWS = 5
FALSE_DISCOVERY_RATE = 0.05
CONFIRMED, NOT_CONFIRMED, TOO_RARE = "confirmed", "not confirmed", "too rare"


@dataclass(frozen=True, kw_only=True, eq=False)
class Association:
    """Row by row; NaN where a ratio has no meaning (nothing to divide by)."""

    lift: Float64[np.ndarray, " rows"]
    low: Float64[np.ndarray, " rows"]
    """The 95% interval's ends. Where the out never follows the pair: 0, and the exact bound of a proportion of 0."""
    high: Float64[np.ndarray, " rows"]
    p_value: Float64[np.ndarray, " rows"]
    q_value: Float64[np.ndarray, " rows"]
    """p-values adjusted for the false discovery rate; NaN for rows that are too rare."""
    too_rare: Bool[np.ndarray, " rows"]

    @property
    def verdicts(self) -> tuple[str, ...]:
        """A word a row."""
        confirmed = np.nan_to_num(self.q_value, nan=1.0) <= FALSE_DISCOVERY_RATE
        words = np.where(confirmed, CONFIRMED, NOT_CONFIRMED)
        return tuple(np.where(self.too_rare, TOO_RARE, words).tolist())


def associate(counts: Counts, *, upwards: Bool[np.ndarray, " rows"] | bool = True) -> Association:
    """Formulas and rule at the head of this module. `upwards` (of all rows, or row by row) False tests lift < 1."""
    a, x, y, m = (
        column.astype(np.float64)
        for column in (counts.pair_out, counts.pair, counts.destination_out, counts.destination)
    )
    degrees = (counts.windows_out - 1).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        lift = (a / x) / (y / m)
        error = np.sqrt(_quadratic(counts.moments, np.stack([1 / a, -1 / x, -1 / y, 1 / m], axis=1)))
        quantile = np.where(degrees > 0, stats.t.ppf(0.975, np.maximum(degrees, 1)), np.inf)
        low, high = lift * np.exp(-quantile * error), lift * np.exp(quantile * error)
        never = (a == 0) & (x > 0) & (y > 0)
        low = np.where(never, 0.0, low)
        high = np.where(never, -np.expm1(np.log(0.025) / x) / (y / m), high)
        sample = np.where(degrees > 0, stats.t.sf(np.log(lift) / error, np.maximum(degrees, 1)), 1.0)
        statistic, null_degrees = _against_null(counts, a, x, y, m)
        up = [stats.hypergeom.sf(a - 1, m, y, x), stats.t.sf(statistic, null_degrees), sample]
        down = [stats.hypergeom.cdf(a, m, y, x), stats.t.cdf(statistic, null_degrees)]
    above, below = (np.nan_to_num(np.stack(tests), nan=1.0).max(0) for tests in (up, down))
    p_value = np.where(upwards, above, below)
    alone = counts.destination - counts.pair
    too_rare = (counts.pair < MIN_OCCURRENCES) | (counts.windows < MIN_WINDOWS) | (alone < MIN_OCCURRENCES)
    q_value = np.full(len(a), np.nan)
    if not too_rare.all():
        q_value[~too_rare] = stats.false_discovery_control(p_value[~too_rare])
    return Association(lift=lift, low=low, high=high, p_value=p_value, q_value=q_value, too_rare=too_rare)


def _against_null(
    counts: Counts, a: np.ndarray, x: np.ndarray, y: np.ndarray, m: np.ndarray
) -> tuple[Float64[np.ndarray, " rows"], Float64[np.ndarray, " rows"]]:
    """The `null` test's statistic and its degrees of freedom; NaN where there is nothing to test."""
    p = y / m
    second = _quadratic(counts.moments, np.stack([0 * a, 0 * a, np.ones_like(a), -p], axis=1))
    binomial = np.array([1, 4, 6, 4, 1]) * (-p[:, None]) ** np.arange(5)
    # Rounding must not give more degrees than there are windows, of which there are m at most.
    fourth = np.maximum((counts.fourth * binomial).sum(1), second**2 / np.maximum(counts.destination, 1))
    return (a - x * p) / np.sqrt(x / m * (1 - x / m) * second), np.maximum(second**2 / fourth, 1.0)


def _quadratic(moments: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    """Σ_w (gradient · counts_w)², from second moments; rounding may leave less than 0."""
    return np.maximum(np.einsum("ri,rij,rj->r", gradient, moments, gradient), 0.0)
