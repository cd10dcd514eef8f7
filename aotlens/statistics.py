"""Statistics of a few numbers, as scipy computes them, with what is undefined as NaN."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, Int64

from aotlens.conventions import require_seed


class Line(NamedTuple):
    """y ≈ intercept + slope · x, by least squares."""

    slope: float
    intercept: float
    r_squared: float


def rank_correlation(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float:
    """Return Spearman's rank correlation; NaN for fewer than two points, or where one of the two is constant."""
    import scipy.stats

    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(scipy.stats.spearmanr(x, y).statistic)


def fit_line(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> Line:
    """Return the least-squares line through the points whose y is a number; NaN for fewer than three of them.

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
    """Return Wilson's score interval of a share of n independent trials; NaN for none.

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
    """Return McNemar's exact p-value of two answerers who got the same n questions, right (True) or wrong.

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
    """Return the percentile bootstrap interval of a statistic of n independent units, which gets the drawn units'
    indices.

    Draws for which it is NaN (a mean over units of a kind, where none was drawn) are left out; both ends are NaN where
    it is for all. The units are what varies: heads, sequences or seeds, as the caller has them.
    """
    import scipy.stats

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.stats.DegenerateDataWarning)  # its own interval is NaN with a NaN draw
        result = scipy.stats.bootstrap(
            (np.arange(n),), statistic, n_resamples=n_resamples, vectorized=False, method="percentile",
            rng=np.random.default_rng(require_seed(seed)),
        )  # fmt: skip
    drawn = result.bootstrap_distribution
    known = drawn[np.isfinite(drawn)]
    if not len(known):
        return math.nan, math.nan
    low, high = np.quantile(known, ((1 - confidence) / 2, (1 + confidence) / 2))
    return float(low), float(high)


#: Clusters below which an interval over clusters says nothing beyond the clusters at hand.
LEAST_CLUSTERS = 3


def ratio_intervals(
    sums: Float[np.ndarray, "row n"],
    counts: Float[np.ndarray, "row n"] | Float[np.ndarray, " n"],
    clusters: Int[np.ndarray, " n"] | None = None,
    *,
    confidence: float = 0.95,
) -> Float[np.ndarray, "row 2"]:
    """Return intervals of r = Σ sums ÷ Σ counts, one a row, over the same n units: a mean where all counts are 1.

    `clusters` gives the cluster of each unit, such as the document of a window: units of one cluster may depend on each
    other in any way, clusters do not. None: units are independent. With S_g, C_g the sums over cluster g, C = Σ C_g:

        s_g = S_g − r C_g,   p_g = |C_g| ÷ Σ |C_h|,   V = Σ s_g² ÷ (1 − p_g) ÷ C²,   r ± t_df √V
        df = (tr K)² ÷ ‖K‖²_F,   K = diag(a)(diag c − c cᵀ ÷ Σc) diag(a),   c_g = |C_g|, a_g = (1 − p_g)^−½

    which is CR2, the bias-reduced linearisation, with Satterthwaite's degrees of freedom (Bell and McCaffrey 2002;
    Pustejovsky and Tipton 2018) of a mean weighted by counts; of independent units that count alike it is Student's t
    with n − 1. Counts below 0 (an effect in the denominator) enter by their size.

    NaN below 2 independent units or `LEAST_CLUSTERS` (3) clusters that count. Simulated (`tests/test_statistics.py`),
    60 windows of 5 documents or 3, a share of 0 to .9 of the variance being between documents: nominal 95% covers 94 to
    96%, and with 50, 3, 3, 2 and 2 windows 95 to 99%; windows taken as independent cover 95% at a share of 0, 75 to 83%
    at .1 (60% of the unequal ones) and 25 to 54% at .5. Sums with long tails, such as squared errors, are covered less
    often (`aotlens.evaluate.RegressionErrors.bands` says by how much).
    """
    import scipy.stats

    variance, degrees = ratio_variances(sums, counts, clusters)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = sums.sum(1) / np.broadcast_to(counts, sums.shape).sum(1)
    reach = scipy.stats.t.ppf((1 + confidence) / 2, degrees) * np.sqrt(variance)
    return ratio[:, None] + reach[:, None] * np.array([-1.0, 1.0])


def ratio_variances(
    sums: Float[np.ndarray, "row n"],
    counts: Float[np.ndarray, "row n"] | Float[np.ndarray, " n"],
    clusters: Int[np.ndarray, " n"] | None = None,
) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """Return V and its degrees of freedom, by `ratio_intervals`' formulas; both NaN where that has no interval."""
    weights = np.broadcast_to(counts, sums.shape)
    least = 2
    if clusters is not None:
        groups, least = np.unique(clusters, return_inverse=True)[1], LEAST_CLUSTERS
        of_group = np.equal.outer(groups, np.arange(groups.max(initial=-1) + 1)).astype(np.float64)
        sums, weights = sums @ of_group, weights @ of_group
    with np.errstate(invalid="ignore", divide="ignore"):
        total, sizes = weights.sum(1, keepdims=True), np.abs(weights)
        ratio = sums.sum(1, keepdims=True) / total
        whole = sizes.sum(1, keepdims=True)
        left = 1 - sizes / whole
        variance = (np.square(sums - ratio * weights) / left).sum(1, keepdims=True) / np.square(total)
        lever = np.square(sizes) / whole / left
        frobenius = np.square(sizes) + lever * (lever.sum(1, keepdims=True) - lever)
        degrees = np.square(whole) / frobenius.sum(1, keepdims=True)
    known = ((sizes > 0).sum(1, keepdims=True) >= least) & np.isfinite(ratio)
    return tuple(np.where(known, value, np.nan)[:, 0] for value in (variance, degrees))  # type: ignore[return-value]


def mean_interval(
    values: Float[np.ndarray, " n"], clusters: Int[np.ndarray, " n"] | None = None, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Return `ratio_intervals` of the mean of independent or clustered values."""
    low, high = ratio_intervals(values[None], np.ones(len(values)), clusters, confidence=confidence)[0]
    return float(low), float(high)


def interval_text(interval: Iterable[float], form: str, about: str = "95% ", over: str = "") -> str:
    """Return an interval in brackets behind a number, ` (95% −0.1 to 0.2)`; an empty text for an unknown one, NaN: a
    single sequence or document has none."""
    low, high = interval
    return f" ({about}{low:{form}} to {high:{form}}{over})" if math.isfinite(low) and math.isfinite(high) else ""


def jackknife_error(without: Float[np.ndarray, " unit"]) -> float:
    """Return the standard error √((n − 1) ÷ n · Σ (θ₋ᵤ − θ̄₋)²) of a number from the same number without each unit."""
    n = len(without)
    return float(np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum()))


def holm(p: Float[np.ndarray, " test"]) -> Float[np.ndarray, " test"]:
    """Return p-values corrected for their number by Holm's steps (1979): the smallest of n times n, the next times
    n − 1, each at least the one before and at most 1."""
    order = np.argsort(p, kind="stable")
    corrected = np.empty_like(p)
    corrected[order] = np.maximum.accumulate(np.minimum(1.0, p[order] * np.arange(len(p), 0, -1)))
    return corrected


def p_text(p: float) -> str:
    """Return "p = 0.023", and "p < .001" below that: what a small p adds is the assumptions of its test."""
    return "p < .001" if p < 1e-3 else f"p = {p:.2g}"


def permutation_p(null: Float[np.ndarray, "*row draw"], observed: Any) -> Any:
    """Return the share, one-sided, of draws under the null that are at least as large as what was observed, which
    counts as one of them: (1 + draws as large) ÷ (1 + draws). Ties are within 1e-12."""
    return (1 + (null >= np.asarray(observed)[..., None] - 1e-12).sum(-1)) / (1 + null.shape[-1])


def as_clusters(clusters: Iterable[Hashable] | None, n: int, of: str = "sequences") -> Int64[np.ndarray, " n"] | None:
    """Number from 0 the clusters of n units, given as names or numbers; None stays.

    Raises `ValueError` for another number of them.
    """
    if clusters is None:
        return None
    names = [cluster.item() if hasattr(cluster, "item") else cluster for cluster in clusters]
    if len(names) != n:
        raise ValueError(f"clusters: expected one for each of {n} {of}, got {len(names)}.")
    numbers = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], dtype=np.int64)


#: The verdicts on a member of a set that keeps a share of something.
Verdict: TypeAlias = Literal["necessary", "not necessary", "undecided"]


def necessity(intervals: Float[np.ndarray, "member 2"], keep: float) -> tuple[Verdict, ...]:
    """Return whether a set falls below `keep` without each of its members, by the interval of what it keeps then:
    "undecided" where that is not wholly on one side, or NaN."""
    return tuple(
        "necessary" if high < keep else "not necessary" if low >= keep else "undecided" for low, high in intervals
    )
