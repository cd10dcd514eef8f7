"""The verdict of counts on a row: how much likelier the out is after the source, a test, a verdict.

What a document is about decides both whether a source has been seen and how often an out follows, so places of the
whole text must not be pooled: if two of five novels are not hard-wrapped, "a newline was seen" tells which novel it is.
Places are compared within strata, 8 consecutive windows of one document. In stratum b the destination stands at m_b
places; before x_b of them the source was seen, y_b of them the out follows, a_b are both. Sums over strata have no b.

    E_b = x_b·y_b/m_b      expected of a_b, were the source and the out independent within the stratum
    T_b = a_b − E_b
    lift_within = a / E    log-interval ± t₀.₉₇₅·s, s² = Σ_b (a_b/a − E_b/E)², with one degree of freedom less than
                           there are strata with a_b > 0 (with one such stratum 0 to ∞); for a = 0 < E from 0 to
                           (1 − 0.025^(1/x))·x/E
    lift = (a/x) / (y/m)   of all places pooled: P(out | source … destination) / P(out | destination)

Where the two lie on different sides of 1, the pooled lift tells documents or passages apart, not places.

Three tests of T = 0, one-sided in the row's direction; the largest of their p-values counts, since each fails where
another holds:

    sample   ΣT_b / √(ΣT_b²) against Student's t with (ΣT_b²)² / ΣT_b⁴ degrees: strata are the units. Wrong alone where
             the source is rare or nearly always there, as T_b is skewed then.
    null     ΣT_b / √(ΣV_b), V_b = Σ_{w∈b} v_w, with v_w of `aotlens.trigrams.counting` over the stratum's windows w,
             against Student's t with max(1, (Σ_w v_w)² / Σ_w v_w²) degrees: as if the source stood in a share x_b/m_b
             of the windows at random. Outs that come in bursts count as the few windows that they are. Left out where
             ΣV_b = 0.
    exact    a against the sum of independent hypergeometrics given m_b, x_b, y_b (below):
             right for small counts, but takes places as independent. 1 where every T_b is 0.

What is assumed: strata are independent of each other, and within one its windows are exchangeable. A text whose subject
changes within some thirty windows breaks the second; docs/skip_trigrams.md says how often p is small then.
Within a window they are taken as if the source stood where it does whatever follows the destination. A row that copies
(its source is its out) breaks this: each out is the source of the places after it, which takes `lift_within` below 1 by
chance alone, so that raised rows lose power and suppressed ones are confirmed too often (figures there).

Verdict. `too rare`, counted only in strata that hold places with and without the source (0 < x_b < m_b), since the
others have nothing to compare: fewer than 10 places with it, or fewer than 10 without, or fewer than 5 such strata.
`confirmed`: among the other rows of the table, the null is rejected at a false discovery rate of 5% (Benjamini and
Hochberg 1995). `not confirmed`: the rest; which is not the same as refuted. The tests are one-sided, the interval is
two-sided, so that of a confirmed row may hold 1. A row is asked what it says: that the out becomes likelier where its
effect is positive, less likely where it is negative (`TrigramTable.upwards`).

**The exact tail**, exact to rounding however small it is. In stratum b, y_b of m_b places are marked and x_b of the
places are drawn without replacement, so that the number of marked ones drawn is hypergeometric; S is the sum over
strata. Multiplying probabilities out keeps small tails but costs strata × support²; a Fourier transform is fast but
loses tails below 1e-16. Here S is tilted first: with K(θ) = log E e^{θS} and θ ≥ 0 such that the tilted mean K'(θ) is
a,

    P(S ≥ a) = e^{K(θ) − θa} · Σ_{s ≥ a} P_θ(S = s) · e^{−θ(s − a)},        P_θ(S = s) = e^{θs − K(θ)} P(S = s),

and P_θ, which is largest about a, comes from the product of the strata's characteristic functions at N roots of unity.
These give P_θ wrapped around modulo N. A hypergeometric is a sum of independent Bernoulli variables (Vatutin and
Mikhailov 1982), tilted or not, so Bernstein's inequality bounds what lies outside of N values about the mean: N is
chosen for less than 1e-18. Both that and the transform's rounding are relative to the largest P_θ, hence to the tail.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64
from scipy import stats
from scipy.special import gammaln

from aotlens.results import Result
from aotlens.trigrams.counting import Strata

_LOG_OUTSIDE = np.log(2e18)
_LARGEST_TILT = 60.0
_NEGLIGIBLE = 1e-25  # a tilted probability that changes no tail by its rounding


def upper_tail(
    m: Int64[np.ndarray, " strata"], x: Int64[np.ndarray, " strata"], y: Int64[np.ndarray, " strata"], a: int
) -> float:
    """Return P(S ≥ a) for S = Σ_b hypergeometric(m_b places, y_b of them marked, x_b drawn), relative error some 1e-12.

    P(S ≤ a) is `upper_tail(m, x, m − y, Σ x − a)`. Time: distinct (m, x, y) × √(variance of one) × √(variance of S).
    """
    lowest, highest = np.maximum(0, x + y - m), np.minimum(x, y)
    wanted = int(a - lowest.sum())
    if wanted <= 0:
        return 1.0
    varies = highest > lowest
    width = int((highest - lowest).sum())
    if wanted > width:
        return 0.0
    log_pmf, times = _log_pmfs(m[varies], x[varies], y[varies])
    theta, log_generating, pmf, mean, variance = _tilted_to(wanted, log_pmf, times)
    half = int(np.ceil(_LOG_OUTSIDE / 3 + np.sqrt(_LOG_OUTSIDE**2 / 9 + 2 * _LOG_OUTSIDE * variance)))
    first, last = max(int(mean) - half, 0), min(int(mean) + 1 + half, width)
    if wanted < first:
        return 1.0
    n = last - first + 1
    pmf, starts = _trimmed(pmf)
    shift = int(times @ starts)
    roots = np.exp(-2j * np.pi * np.arange(n) / n)
    frequencies = np.arange(n // 2 + 1)
    powers = roots[np.outer(np.arange(pmf.shape[1]), frequencies) % n]
    characteristic = pmf @ powers.real + 1j * (pmf @ powers.imag)
    repeated = times > 1
    characteristic[repeated] **= times[repeated, None]
    wrapped = np.fft.irfft(np.prod(characteristic, axis=0), n)
    values = np.arange(wanted, last + 1)
    tail = (np.maximum(wrapped[(values - shift) % n], 0.0) * np.exp(-theta * (values - wanted))).sum()
    return float(min(tail * np.exp(log_generating - theta * wanted), 1.0))


def _log_pmfs(
    m: np.ndarray, x: np.ndarray, y: np.ndarray
) -> tuple[Float64[np.ndarray, "distinct support"], Int64[np.ndarray, " distinct"]]:
    """log P(lowest + j), j = 0, 1, …, of the distinct strata (−inf past their support), and how many each is."""
    size = int(m.max()) + 1
    keys, times = np.unique((m * size + x) * size + y, return_counts=True)
    m, x, y = (part[:, None] for part in (keys // size**2, keys // size % size, keys % size))
    lowest, highest = np.maximum(0, x + y - m), np.minimum(x, y)
    k = lowest + np.arange(int((highest - lowest).max()) + 1)
    inside = k <= highest
    k = np.where(inside, k, highest)
    log_factorial = gammaln(np.arange(1, size + 1))
    constant = sum(log_factorial[part] for part in (x, m - x, y, m - y)) - log_factorial[m]
    log_pmf = constant - sum(log_factorial[part] for part in (k, x - k, y - k, m - x - y + k))
    return np.where(inside, log_pmf, -np.inf), times


def _trimmed(
    pmf: Float64[np.ndarray, "distinct support"],
) -> tuple[Float64[np.ndarray, "distinct kept"], Int64[np.ndarray, " distinct"]]:
    """Each stratum's probabilities from its first to its last that is not negligible, and where the first stands."""
    matters = pmf >= _NEGLIGIBLE
    starts, ends = matters.argmax(1), pmf.shape[1] - matters[:, ::-1].argmax(1)
    columns = starts[:, None] + np.arange((ends - starts).max())
    probabilities = np.take_along_axis(pmf, np.minimum(columns, pmf.shape[1] - 1), axis=1)
    return np.where(columns < ends[:, None], probabilities, 0.0), starts


def _tilted_to(
    wanted: int, log_pmf: np.ndarray, times: np.ndarray
) -> tuple[float, float, Float64[np.ndarray, "distinct support"], float, float]:
    """θ ≥ 0, K(θ), tilted probabilities, and mean (near `wanted`) and variance of the tilted sum, by bracketed Newton
    steps."""
    j = np.arange(log_pmf.shape[1])
    low, high, theta = 0.0, _LARGEST_TILT, 0.0
    while True:
        log_weights = log_pmf + theta * j
        largest = log_weights.max(1, keepdims=True)
        weights = np.exp(log_weights - largest)
        totals = weights.sum(1, keepdims=True)
        pmf = weights / totals
        means = pmf @ j
        mean, variance = float(times @ means), float(times @ (pmf @ j**2 - means**2))
        short = wanted - mean
        if short <= 0 and theta == 0:
            break
        low, high = (theta, high) if short > 0 else (low, theta)
        if abs(short) <= 0.25 * np.sqrt(max(variance, 0.0)) or high - low < 1e-3:
            break
        step = theta + short / variance if variance > 1e-12 else np.inf
        theta = step if low < step < high else (low + high) / 2
    return theta, float(times @ (largest + np.log(totals))[:, 0]), pmf, mean, max(variance, 0.0)


MIN_OCCURRENCES = 10
MIN_STRATA = 5
FALSE_DISCOVERY_RATE = 0.05
VERDICTS = CONFIRMED, NOT_CONFIRMED, TOO_RARE = ("confirmed", "not confirmed", "too rare")


@dataclass(frozen=True, kw_only=True, eq=False)
class Association(Result):
    """Row by row; NaN where a ratio has no meaning (nothing to divide by)."""

    lift: Float64[np.ndarray, " rows"]
    """The lift over all places of the text, pooled."""
    lift_within: Float64[np.ndarray, " rows"]
    """The lift within strata."""
    low: Float64[np.ndarray, " rows"]
    """The ends of the 95% interval of `lift_within`."""
    high: Float64[np.ndarray, " rows"]
    p_sample: Float64[np.ndarray, " rows"]
    p_null: Float64[np.ndarray, " rows"]
    """The p-value under the null's variance; NaN where it is left out."""
    p_exact: Float64[np.ndarray, " rows"]
    p_value: Float64[np.ndarray, " rows"]
    """The largest of the three."""
    q_value: Float64[np.ndarray, " rows"]
    """p-values adjusted for the false discovery rate; NaN for rows that are too rare."""
    too_rare: Bool[np.ndarray, " rows"]

    @property
    def lifts_disagree(self) -> Bool[np.ndarray, " rows"]:
        """Whether `lift` and `lift_within` lie on different sides of 1."""
        return ((self.lift > 1) & (self.lift_within < 1)) | ((self.lift < 1) & (self.lift_within > 1))

    @property
    def verdicts(self) -> tuple[str, ...]:
        """Each row's verdict: confirmed, not confirmed or too rare."""
        confirmed = np.nan_to_num(self.q_value, nan=1.0) <= FALSE_DISCOVERY_RATE
        words = np.where(confirmed, CONFIRMED, NOT_CONFIRMED)
        return tuple(np.where(self.too_rare, TOO_RARE, words).tolist())


def associate(strata: Strata, *, upwards: Bool[np.ndarray, " rows"] | bool = True) -> Association:
    """Test rows by the rule at the head of this module: `upwards` for a likelier out, otherwise for suppression. Some
    milliseconds per row with hundreds of strata."""
    upwards = np.broadcast_to(upwards, strata.n_rows)
    sign = np.where(upwards, 1.0, -1.0)
    m, x, y, a = (part.astype(np.float64) for part in (strata.places, strata.with_source, strata.followed, strata.both))
    expected = x * y / m
    difference = a - expected
    total, second, fourth = (strata.total(difference**power) for power in (1, 2, 4))
    p_exact = _exact(strata, upwards, second > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        sample = stats.t.sf(sign * total / np.sqrt(second), second**2 / fourth)
        p_sample = np.where(second > 0, sample, 1.0)
        degrees = np.maximum(strata.variance**2 / strata.variance_squared, 1.0)
        p_null = stats.t.sf(sign * total / np.sqrt(strata.variance), degrees)
        p_null = np.where((second > 0) & (strata.variance > 0), p_null, np.nan)
        lift = strata.total(a) / strata.total(x) / (strata.total(y) / strata.total(m))
    lift_within, low, high = _lift_within(strata, a, x, expected)
    p_value = np.fmax(np.maximum(p_sample, p_exact), p_null)
    mixed = (x > 0) & (x < m)
    too_rare = (
        (strata.total(x * mixed) < MIN_OCCURRENCES)
        | (strata.total((m - x) * mixed) < MIN_OCCURRENCES)
        | (strata.total(mixed.astype(np.float64)) < MIN_STRATA)
    )
    q_value = np.full(strata.n_rows, np.nan)
    if not too_rare.all():
        q_value[~too_rare] = stats.false_discovery_control(p_value[~too_rare])
    return Association(
        lift=lift,
        lift_within=lift_within,
        low=low,
        high=high,
        p_sample=p_sample,
        p_null=p_null,
        p_exact=p_exact,
        p_value=p_value,
        q_value=q_value,
        too_rare=too_rare,
    )


def _lift_within(
    strata: Strata, a: np.ndarray, x: np.ndarray, expected: np.ndarray
) -> tuple[Float64[np.ndarray, " rows"], Float64[np.ndarray, " rows"], Float64[np.ndarray, " rows"]]:
    """Return a/E with its interval."""
    all_a, all_x, all_expected = (strata.total(part) for part in (a, x, expected))
    degrees = strata.total((a > 0).astype(np.float64)) - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        lift = all_a / all_expected
        shares = a / all_a[strata.row] - expected / all_expected[strata.row]
        spread = np.sqrt(strata.total(shares**2))
        reach = np.where(degrees > 0, stats.t.ppf(0.975, np.maximum(degrees, 1)) * spread, np.inf)
        low, high = lift * np.exp(-reach), lift * np.exp(reach)
        never = (all_a == 0) & (all_expected > 0)
        low = np.where(never, 0.0, low)
        high = np.where(never, -np.expm1(np.log(0.025) / all_x) * all_x / all_expected, high)
    return lift, low, high


def _exact(strata: Strata, upwards: np.ndarray, tested: np.ndarray) -> Float64[np.ndarray, " rows"]:
    """The exact test of the rows that are tested; 1 for the others."""
    p_value = np.ones(strata.n_rows)
    first = np.searchsorted(strata.row, np.arange(strata.n_rows + 1))
    for row in np.flatnonzero(tested):
        cells = slice(first[row], first[row + 1])
        m, x, y = strata.places[cells], strata.with_source[cells], strata.followed[cells]
        a = int(strata.both[cells].sum())
        if upwards[row]:
            p_value[row] = upper_tail(m, x, y, a)
        else:
            p_value[row] = upper_tail(m, x, m - y, int(x.sum()) - a)
    return p_value
