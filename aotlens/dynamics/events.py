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
from aotlens.statistics import holm

if TYPE_CHECKING:
    import pandas as pd

#: Snapshots that a change point takes.
LEAST_SNAPSHOTS = 12
#: Share of the snapshots that the band is made of, and how many at least.
_FIRST, _LEAST = 0.1, 5
#: Half the band's width, in standard errors.
_ERRORS = 3.0
_MOST_P = 0.05
#: Correlations of neighbours that flat curves may have, and how rarely a curve leaves less than one of them does.
_CORRELATIONS = np.array([0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98])
_UNLIKELY = 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class ChangePoint(Result):
    """The change point of a curve, when it leaves its first values for good; `step` is None where it does not."""

    step: int | None
    """The first snapshot after which all lie outside the band."""
    after: int | None
    """The snapshot before it: the change was between the two."""
    onset: int | None
    """The step at which a segmented fit begins to rise or fall; None where the curve may be flat."""
    p: float
    """The probability that a flat curve with its autocorrelation is as near to one that rises or falls."""
    low: float
    """The band: the mean of the first tenth of the snapshots minus 3 standard errors."""
    high: float

    @property
    def headline(self) -> str:
        return f"no change (p = {self.p:.3f})" if self.step is None else f"between steps {self.after} and {self.step}"


def change_point(
    steps: Sequence[int] | np.ndarray, values: Sequence[float] | np.ndarray, *, n_random: int = 199, seed: int = 0
) -> ChangePoint:
    """Return the first snapshot after which all values lie outside the band of the first tenth (5 at least), their mean
    ± 3 standard errors, on one side of it.

    A flat curve leaves so narrow a band by chance. So there must be as many snapshots outside as the band is made of,
    and the best rising or falling curve (isotonic regression) must explain more of the curve than it does of 95% of
    `n_random` flat curves of Gaussian noise, whose neighbours correlate as much as is compatible (95%) with what the
    fit leaves of the curve. Of 1,000 flat curves whose neighbours correlate by up to .9, fewer than 5% have a change
    point; beyond that a flat curve wanders like one that changes.

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
    half = _ERRORS * curve[:k].std(ddof=1) / math.sqrt(k)
    low, high = curve[:k].mean() - half, curve[:k].mean() + half
    side = np.where(curve > high, 1, np.where(curve < low, -1, 0))
    first = n
    while first > 0 and side[first - 1] == side[-1] != 0:
        first -= 1
    explained, correlation = _monotone(curve)
    noise = _noise(n, _largest_correlation(n, correlation), n_random, seed)
    p = (1 + sum(_monotone(each)[0] >= explained - 1e-12 for each in noise)) / (1 + n_random)
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
    between snapshots; NaN where fewer than two seeds have both."""
    p: Float64[np.ndarray, "event event"]
    """The p-value of the row's event not being before the column's: paired t of log steps over seeds, each at the end
    of its interval that speaks against it, two-sided, with Holm's correction over pairs. Where all seeds differ by the
    same, which gives t no spread, that of the sign test, 2 ÷ 2ⁿ of n seeds."""
    n_seeds: Int64[np.ndarray, "event event"]
    """Seeds that have both events."""

    @property
    def before(self) -> Bool[np.ndarray, "event event"]:
        """Whether the row's event comes before the column's, at p ≤ .05."""
        return self.p <= _MOST_P

    @property
    def headline(self) -> str:
        pairs = [f"{self.events[a]} before {self.events[b]}" for a, b in np.argwhere(self.before)]
        return "; ".join(pairs) if pairs else "no order is decided"

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each pair of different events: earlier, later, factor, p, n_seeds, decided."""
        import pandas as pd

        rows = [
            (self.events[a], self.events[b], self.factor[a, b], self.p[a, b], self.n_seeds[a, b], self.before[a, b])
            for a, b in itertools.permutations(range(len(self.events)), 2)
        ]
        return pd.DataFrame(rows, columns=["earlier", "later", "factor", "p", "n_seeds", "decided"])


def order_of_events(changes: Mapping[str, Sequence[ChangePoint]]) -> EventOrder:
    """Return the order of events, each with its change point in every seed, in the same order of seeds.

    Seeds without both events of a pair do not count for it. Raises `ValueError` for fewer than two events, and for
    events of different numbers of seeds.
    """
    import scipy.stats

    names = tuple(changes)
    if len(names) < 2 or len({len(each) for each in changes.values()}) != 1:
        sizes = ", ".join(f"{name}: {len(each)}" for name, each in changes.items())
        raise ValueError(f"expected at least two events with a change point in each seed, got {sizes or 'none'}.")
    intervals = np.array([[_log_interval(change) for change in changes[name]] for name in names])
    shape = (len(names), len(names))
    factor, p, n_seeds = np.full(shape, np.nan), np.ones(shape), np.zeros(shape, dtype=np.int64)
    for a, b in itertools.permutations(range(len(names)), 2):
        both = np.isfinite(intervals[[a, b]]).all((0, 2))
        n_seeds[a, b] = both.sum()
        if n_seeds[a, b] < 2:
            continue
        own, other = intervals[a, both], intervals[b, both]
        factor[a, b] = np.exp((own.mean(1) - other.mean(1)).mean())
        against = own[:, 1] - other[:, 0]  # the latest that a may have been, beside the earliest of b
        if np.ptp(against) < 1e-9:
            p[a, b] = min(1.0, 2 * 0.5 ** len(against)) if against[0] < 0 else 1.0
            continue
        p[a, b] = min(1.0, 2 * float(scipy.stats.ttest_1samp(against, 0.0, alternative="less").pvalue))
    return EventOrder(events=names, factor=factor, p=_holm(p), n_seeds=n_seeds)


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


def _monotone(curve: Float64[np.ndarray, " n"]) -> tuple[float, float]:
    """The share of a curve's variance that the best rising or falling curve explains (isotonic regression), and the
    correlation of neighbours in what that leaves."""
    from scipy.optimize import isotonic_regression

    total = float(((curve - curve.mean()) ** 2).sum())
    left = min((curve - isotonic_regression(curve, increasing=rises).x for rises in (True, False)), key=np.linalg.norm)
    power = float(left @ left)
    explained = 1 - power / total if total > 0 else 0.0
    return explained, float(left[1:] @ left[:-1]) / power if power > 0 else 0.0


@lru_cache(maxsize=8)
def _usual_correlations(n: int) -> Float64[np.ndarray, " correlation"]:
    """Return for each of `_CORRELATIONS` the value that the correlation after a fit lies below in a share `_UNLIKELY`
    of flat curves: a fit takes away most of what makes neighbours alike."""
    curves = (_noise(n, each, 200, seed=0) for each in _CORRELATIONS)
    return np.array([np.quantile([_monotone(curve)[1] for curve in each], _UNLIKELY) for each in curves])


def _largest_correlation(n: int, left: float) -> float:
    """The largest correlation of neighbours in flat curves that leaves so little after a fit in more than a share
    `_UNLIKELY` of them."""
    return float(np.interp(left, np.maximum.accumulate(_usual_correlations(n)), _CORRELATIONS))


def _noise(n: int, correlation: float, number: int, seed: int) -> Float64[np.ndarray, "curve n"]:
    """Stationary Gaussian curves whose neighbours have this correlation."""
    draws = np.random.default_rng(require_seed(seed)).normal(size=(number, n))
    curves = np.empty_like(draws)
    curves[:, 0] = draws[:, 0]
    for place in range(1, n):
        curves[:, place] = correlation * curves[:, place - 1] + math.sqrt(1 - correlation**2) * draws[:, place]
    return curves
