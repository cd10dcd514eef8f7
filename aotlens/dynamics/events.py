"""The change points of curves over training, and the order of several events."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64, Int64

from aotlens.conventions import require_seed, require_whole
from aotlens.results import Result
from aotlens.statistics import holm, p_text

if TYPE_CHECKING:
    import pandas as pd

#: Seeds that have both events, below which their order is undecided.
LEAST_SEEDS = 3
#: Snapshots that a change point takes.
LEAST_SNAPSHOTS = 12
#: Share of the snapshots that the band is made of, and how many at least.
_FIRST, _LEAST = 0.1, 5
#: Half the band's width, in standard errors.
_ERRORS = 3.0
_MOST_P = 0.05
#: What the p of a departure is multiplied by, and how many more flat curves it is compared with: these cost little.
_TIMES, _DRAWS = 4, 10
#: Correlations of neighbours that flat curves may have, and how rarely a curve leaves less than one of them does, after
#: a steady rise or fall is taken away, and after lines are.
_CORRELATIONS = np.array([0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98])
_UNLIKELY, _UNLIKELY_OF_LINES = 0.03, 0.05
#: Neighbours to which a line is fitted, for the local noise of a curve: of few snapshots, and of 40 or more.
_FEW, _MANY = 7, 9
#: The share of a curve, and the fewest snapshots, where it is quietest, that its local noise is measured on.
_QUIET, _LEAST_QUIET = 0.15, 5


@dataclass(frozen=True, kw_only=True, eq=False)
class ChangePoint(Result):
    """The change point of a curve, when it leaves its first values for good; `step` is None where it does not."""

    step: int | None
    """The first snapshot after which all lie outside the band."""
    after: int | None
    """The snapshot before it: the change was between the two."""
    onset: int | None
    """The step at which the best segmented fit (flat, a straight rise or fall, flat) begins to rise or fall, whatever
    the curve does afterwards; None where the curve may be flat."""
    p: float
    """The probability that a flat curve with the same autocorrelation gives as strong evidence of a change, by either
    of the two tests of `change_point`."""
    low: float
    """The band: the mean of the first tenth of the snapshots minus 3 standard errors."""
    high: float

    @property
    def headline(self) -> str:
        return (
            f"no lasting change found (p = {self.p:.3f})"
            if self.step is None
            else f"between steps {self.after} and {self.step}"
        )


def change_point(
    steps: Sequence[int] | np.ndarray, values: Sequence[float] | np.ndarray, *, n_random: int = 199, seed: int = 0
) -> ChangePoint:
    """Return the first snapshot after which all values lie outside the band of the first tenth (5 at least), their mean
    ± 3 standard errors, on one side of it.

    A flat curve leaves so narrow a band by chance. So there must be as many snapshots outside as the band is made of,
    and one of two tests must reject that the curve is flat. Both compare it with `n_random` flat curves of Gaussian
    noise, whose neighbours correlate as much as is compatible (95 and 97%) with the noise that the curve has:

        departure    |mean outside − mean of the first tenth| ÷ local noise, of any shape
        monotone     share of the variance that the best rising or falling curve explains (isotonic regression)

    with local noise the mean distance from a line through 7 neighbours (9 of 40 snapshots or more), in the 15% of the
    snapshots in a row where it is smallest. p is the smaller of p(monotone) and 4 p(departure), the latter of 10
    `n_random` flat curves. Both p are conservative, as each test allows for more correlation than it measures; the
    level of the smaller one is simulated (docs/training-film.md): at most 5% of flat curves have a change point whose
    neighbours correlate by .9 or less. Beyond .9 a flat curve wanders like one that changes, and so does a slow drift
    with noise of its own on it, which hides how slow it is.

    Where the first snapshots are a few steps apart, nothing moves among them, and the band is as narrow as that: a
    curve leaves it long before it changes much. `onset`, from a segmented fit (flat, a straight rise or fall, flat),
    says when most of the change begins.

    Raises `ValueError` for fewer than 12 snapshots, or values that are not finite.
    """
    require_whole("n_random", n_random, 19)
    curve = np.asarray(values, dtype=np.float64)
    n = len(curve)
    if curve.ndim != 1 or n != len(steps) or n < LEAST_SNAPSHOTS:
        raise ValueError(
            f"expected a value at each of at least {LEAST_SNAPSHOTS} steps, got {len(steps)} steps and {n} values."
        )
    if not np.isfinite(curve).all():
        raise ValueError("expected finite values; leave out the snapshots at which nothing was measured.")
    k = _tenth(n)
    (low,), (high,) = _band(curve[None])
    first = n - int(_outside(curve[None])[0])
    p = min(_p_of_monotone(curve, n_random, seed), _TIMES * _p_of_departure(curve, _DRAWS * n_random, seed))
    is_found = n - first >= k and p <= _MOST_P
    return ChangePoint(
        step=int(steps[first]) if is_found else None,
        after=int(steps[first - 1]) if is_found and first else None,
        onset=int(steps[_onset(curve)]) if p <= _MOST_P else None,
        p=p,
        low=float(low),
        high=float(high),
    )


def half_way(
    steps: Sequence[int] | np.ndarray, values: Sequence[float] | np.ndarray, *, n_random: int = 199, seed: int = 0
) -> ChangePoint:
    """Find when a curve has made half of its whole change, from the mean of its first tenth of snapshots to that of its
    last, for good: the first snapshot after which all are nearer to the end. A curve leaves its beginning for reasons
    of its own, and this is when most of what it becomes is there.

    The rest is of `change_point`, whose `step` has to be some: a flat curve has no half. Raises `ValueError` as that.
    """
    change = change_point(steps, values, n_random=n_random, seed=seed)
    if change.step is None:
        return change
    curve = np.asarray(values, dtype=np.float64)
    low, high = curve[: _tenth(len(curve))].mean(), curve[-_tenth(len(curve)) :].mean()
    ahead = (curve - low) * (high - low) >= (high - low) ** 2 / 2
    place = len(curve) - int(np.argmin(ahead[::-1]))
    if place == len(curve):  # the last one has fallen back
        return replace(change, step=None, after=None)
    return replace(change, step=int(steps[place]), after=int(steps[place - 1]))


def _tenth(n: int) -> int:
    """Return the number of snapshots, of n, that count as the first, or the last."""
    return max(_LEAST, math.ceil(_FIRST * n))


@dataclass(frozen=True, kw_only=True, eq=False)
class EventOrder(Result):
    """The order of several events over seeds: a partial order, with what is not decided left undecided."""

    events: tuple[str, ...]
    factor: Float64[np.ndarray, "event event"]
    """Geometric mean over seeds of the step of the row's event ÷ that of the column's, at the middles of the intervals
    between snapshots; NaN where fewer than three seeds have both."""
    p: Float64[np.ndarray, "event event"]
    """The p-value of the row's event not being before the column's: paired t of log steps over seeds, each at the end
    of its interval that speaks against it, two-sided, with Holm's correction over pairs; 1 for fewer than three seeds.
    Where all seeds differ by the same, which gives t no spread, that of the sign test. A small p depends on the grid of
    snapshots, which makes seeds alike that are not; read `sign_p` next to it."""
    n_seeds: Int64[np.ndarray, "event event"]
    """Seeds that have both events."""
    sign_p: Float64[np.ndarray, "event event"] | None = None
    """The same of the sign test, which asks only in how many seeds the row's event is surely before the column's, and
    in how many surely after (their intervals do not overlap): 2 ÷ 2ⁿ at the least of n seeds, before Holm's
    correction. None in files from before there was any."""

    @property
    def before(self) -> Bool[np.ndarray, "event event"]:
        """Whether the row's event comes before the column's, at p ≤ .05."""
        return self.p <= _MOST_P

    @property
    def headline(self) -> str:
        return "; ".join(self.decided) or "no order is decided"

    @property
    def decided(self) -> tuple[str, ...]:
        """Each pair whose order is decided, with its p by t and by the sign test."""
        signs = self.sign_p
        return tuple(
            f"{self.events[a]} before {self.events[b]} ({p_text(self.p[a, b])}"
            f"{'' if signs is None else f', sign test {p_text(signs[a, b])}'}, {self.n_seeds[a, b]} seeds)"
            for a, b in np.argwhere(self.before)
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each pair of different events: earlier, later, factor, p, sign_p, n_seeds, decided."""
        import pandas as pd

        signs = np.full_like(self.p, np.nan) if self.sign_p is None else self.sign_p
        arrays = {"factor": self.factor, "p": self.p, "sign_p": signs, "n_seeds": self.n_seeds, "decided": self.before}
        pairs = [*itertools.permutations(range(len(self.events)), 2)]
        names = {"earlier": [self.events[a] for a, _ in pairs], "later": [self.events[b] for _, b in pairs]}
        return pd.DataFrame({**names, **{name: [values[pair] for pair in pairs] for name, values in arrays.items()}})


def order_of_events(changes: Mapping[str, Sequence[ChangePoint]]) -> EventOrder:
    """Return the order of events, each with its change point in every seed, in the same order of seeds.

    Seeds without both events of a pair do not count for it, and fewer than three seeds decide nothing. Raises
    `ValueError` for fewer than two events, and for events of different numbers of seeds.
    """
    import scipy.stats

    names = tuple(changes)
    if len(names) < 2 or len({len(points) for points in changes.values()}) != 1:
        sizes = ", ".join(f"{name}: {len(points)}" for name, points in changes.items())
        raise ValueError(f"expected at least two events with a change point in each seed, got {sizes or 'none'}.")
    intervals = np.array([[_log_interval(change) for change in changes[name]] for name in names])
    shape = (len(names), len(names))
    factor, n_seeds = np.full(shape, np.nan), np.zeros(shape, dtype=np.int64)
    p, sign_p = np.ones(shape), np.ones(shape)
    for a, b in itertools.permutations(range(len(names)), 2):
        both = np.isfinite(intervals[[a, b]]).all((0, 2))
        n_seeds[a, b] = both.sum()
        if n_seeds[a, b] < LEAST_SEEDS:
            continue
        own, other = intervals[a, both], intervals[b, both]
        factor[a, b] = np.exp((own.mean(1) - other.mean(1)).mean())
        against = own[:, 1] - other[:, 0]  # the latest that a may have been, and the earliest of b
        n_before, n_after = int((against <= 1e-9).sum()), int((other[:, 1] - own[:, 0] <= 1e-9).sum())
        if n_before > n_after:
            sign_p[a, b] = scipy.stats.binomtest(n_before, n_before + n_after).pvalue
        if np.ptp(against) < 1e-9:
            p[a, b] = sign_p[a, b] if against[0] < 0 else 1.0
            continue
        p[a, b] = min(1.0, 2 * float(scipy.stats.ttest_1samp(against, 0.0, alternative="less").pvalue))
    return EventOrder(events=names, factor=factor, p=_holm(p), n_seeds=n_seeds, sign_p=_holm(sign_p))


def _log_interval(change: ChangePoint) -> tuple[float, float]:
    """Return the log steps between which the change was; step 0 counts as ½."""
    if change.step is None:
        return math.nan, math.nan
    return math.log(max(change.after or 0, 0.5)), math.log(max(change.step, 0.5))


def _holm(p: Float64[np.ndarray, "event event"]) -> Float64[np.ndarray, "event event"]:
    """Holm's correction over pairs: of the two directions of a pair at most one is small, and both count once."""
    pairs, corrected = np.triu_indices(len(p), 1), np.ones_like(p)
    smaller = np.minimum(p, p.T)
    corrected[pairs] = holm(smaller[pairs])
    corrected = np.minimum(corrected, corrected.T)
    return np.where(p == smaller, corrected, 1.0)


@lru_cache(maxsize=8)
def _ramps(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Every curve that is flat, rises in a straight line between two places and is flat again, centred and of norm 1,
    `[ramp, n]`, and the place where each begins to rise."""
    places = np.arange(n)
    ends = [(a, b) for a, b in itertools.combinations(range(n), 2)]
    ramps = np.stack([np.clip((places - a) / (b - a), 0, 1) for a, b in ends])
    ramps -= ramps.mean(1, keepdims=True)
    return ramps / np.linalg.norm(ramps, axis=1, keepdims=True), np.array([a for a, _ in ends])


def _onset(curve: Float64[np.ndarray, " n"]) -> int:
    """Return the place at which the ramp that explains most of a curve begins to rise or fall."""
    ramps, begins = _ramps(len(curve))
    return int(begins[np.abs(ramps @ (curve - curve.mean())).argmax()])


def _p_of_monotone(curve: Float64[np.ndarray, " n"], n_random: int, seed: int) -> float:
    """The share of flat curves, this one among them, of which a rise or fall explains as much as of the curve."""
    explained, correlation = _monotone(curve)
    usual = _usual_correlations(len(curve))
    noise = _noise(len(curve), _largest_correlation(usual, correlation), n_random, seed)
    return (1 + sum(_monotone(curve)[0] >= explained - 1e-12 for curve in noise)) / (1 + n_random)


def _p_of_departure(curve: Float64[np.ndarray, " n"], n_random: int, seed: int) -> float:
    """The share of flat curves, this one among them, that leave their first values as far for good."""
    (departure,), (correlation,) = _departures(curve[None])
    largest = _largest_correlation(_usual_correlations_of_lines(len(curve)), float(correlation))
    at_least = _CORRELATIONS[np.searchsorted(_CORRELATIONS, largest)]
    return float((1 + (_flat_departures(len(curve), at_least, n_random, seed) >= departure).sum()) / (1 + n_random))


@lru_cache(maxsize=32)
def _flat_departures(n: int, correlation: float, number: int, seed: int) -> Float64[np.ndarray, " curve"]:
    return _departures(_noise(n, correlation, number, seed))[0]


def _departures(
    curves: Float64[np.ndarray, "curve n"],
) -> tuple[Float64[np.ndarray, " curve"], Float64[np.ndarray, " curve"]]:
    """Return for each curve |mean of the snapshots outside for good − mean of the first tenth| ÷ the noise where
    it is least (0 where fewer than a tenth are outside), and the correlation of neighbours in what local lines leave.

    The correlation is (a² − b²) ÷ (a² + b²) of the medians a and b of neighbours' absolute sums and differences, so
    that a jump, where a line does not fit, counts little (Gnanadesikan and Kettenring 1972).
    """
    n = curves.shape[1]
    left = curves @ _beyond_lines(n).T
    width = max(_LEAST_QUIET, round(_QUIET * n))
    quiet = np.lib.stride_tricks.sliding_window_view(np.abs(left), width, axis=1).mean(2).min(1)
    a, b = (np.median(np.abs(part), axis=1) for part in (left[:, 1:] + left[:, :-1], np.diff(left)))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations = np.nan_to_num((a**2 - b**2) / (a**2 + b**2))
        first = curves[:, : _tenth(n)].mean(1)
        outside = _outside(curves)
        means = (curves * (np.arange(n) >= n - outside[:, None])).sum(1) / outside
        departures = np.where(outside >= _tenth(n), np.abs(means - first) / quiet, 0.0)
    return departures, correlations


def _band(curves: Float64[np.ndarray, "curve n"]) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper end of each curve's band."""
    first = curves[:, : _tenth(curves.shape[1])]
    middle, half = first.mean(1), _ERRORS * first.std(1, ddof=1) / math.sqrt(first.shape[1])
    return middle - half, middle + half


def _outside(curves: Float64[np.ndarray, "curve n"]) -> Int64[np.ndarray, " curve"]:
    """Return the number of last snapshots of each curve that lie outside its band on one side."""
    low, high = (end[:, None] for end in _band(curves))
    side = np.where(curves > high, 1, np.where(curves < low, -1, 0))
    same = (side == side[:, -1:]) & (side != 0)
    return np.cumprod(same[:, ::-1], axis=1).sum(1)


@lru_cache(maxsize=8)
def _beyond_lines(n: int) -> Float64[np.ndarray, "n n"]:
    """Return the matrix that takes from each value of a curve that of a line through it and its nearest neighbours."""
    width, matrix = _MANY if n >= 40 else _FEW, np.eye(n)
    for place in range(n):
        begin = min(max(0, place - width // 2), n - width)
        near = np.arange(begin, begin + width)
        matrix[place, near] -= np.linalg.pinv(np.stack([np.ones(width), near - place], 1))[0]
    return matrix


def _monotone(curve: Float64[np.ndarray, " n"]) -> tuple[float, float]:
    """The share of a curve's variance that the best rising or falling curve explains (isotonic regression), and the
    correlation of neighbours in what that leaves: itself, or the root of that two snapshots apart where it is larger,
    as where a slow drift has noise of its own on it."""
    from scipy.optimize import isotonic_regression

    total = float(((curve - curve.mean()) ** 2).sum())
    left = min((curve - isotonic_regression(curve, increasing=rises).x for rises in (True, False)), key=np.linalg.norm)
    power = float(left @ left)
    explained = 1 - power / total if total > 0 else 0.0
    if power == 0:
        return explained, 0.0
    return explained, max(float(left[1:] @ left[:-1]) / power, math.sqrt(max(float(left[2:] @ left[:-2]), 0) / power))


@lru_cache(maxsize=8)
def _usual_correlations(n: int) -> Float64[np.ndarray, " correlation"]:
    """Return for each of `_CORRELATIONS` the value that the correlation after a fit lies below in a share `_UNLIKELY`
    of flat curves: a fit takes away most of what makes neighbours alike."""
    curves = (_noise(n, each, 200, seed=0) for each in _CORRELATIONS)
    return np.array([np.quantile([_monotone(curve)[1] for curve in each], _UNLIKELY) for each in curves])


@lru_cache(maxsize=8)
def _usual_correlations_of_lines(n: int) -> Float64[np.ndarray, " correlation"]:
    """As `_usual_correlations`, of what local lines leave."""
    curves = (_noise(n, each, 400, seed=0) for each in _CORRELATIONS)
    return np.array([np.quantile(_departures(each)[1], _UNLIKELY_OF_LINES) for each in curves])


def _largest_correlation(usual: Float64[np.ndarray, " correlation"], left: float) -> float:
    """The largest correlation of neighbours in flat curves that leaves so little after a fit in more than a share
    `_UNLIKELY` of them."""
    return float(np.interp(left, np.maximum.accumulate(usual), _CORRELATIONS))


def _noise(n: int, correlation: float, number: int, seed: int) -> Float64[np.ndarray, "curve n"]:
    """Stationary Gaussian curves whose neighbours have this correlation."""
    draws = np.random.default_rng(require_seed(seed)).normal(size=(number, n))
    curves = np.empty_like(draws)
    curves[:, 0] = draws[:, 0]
    for place in range(1, n):
        curves[:, place] = correlation * curves[:, place - 1] + math.sqrt(1 - correlation**2) * draws[:, place]
    return curves
