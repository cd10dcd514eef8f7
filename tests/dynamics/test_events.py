"""Change points on curves with a known change, and on flat ones; orders of events that are known, or are not."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.signal
import scipy.stats

from aotlens.dynamics import ChangePoint, change_point, half_way, order_of_events
from tests.messages import refused


def flat(n: int, correlation: float, generator: np.random.Generator) -> np.ndarray:
    """Stationary noise whose neighbours correlate, as scipy filters it, after a thousand draws to forget its start."""
    draws = generator.normal(size=1000 + n) * np.sqrt(1 - correlation**2)
    filtered: np.ndarray = scipy.signal.lfilter([1.0], [1.0, -correlation], draws)
    return filtered[1000:]


@pytest.mark.slow
def test_flat_curves_raise_few_false_alarms() -> None:
    generator = np.random.default_rng(0)
    alarms = [
        change_point(range(60), flat(60, correlation, generator), n_random=99).step is not None
        for correlation in (0.0, 0.5, 0.8, 0.9)
        for _ in range(250)
    ]
    assert len(alarms) == 1000 and np.mean(alarms) <= 0.05
    assert np.mean(alarms[-250:]) <= 0.05, "of the most correlated ones too"


@pytest.mark.parametrize("sign", [1, -1])
def test_known_changes_are_found(sign: int) -> None:
    generator = np.random.default_rng(1)
    steps = [*range(60)]
    for correlation, size in ((0.0, 6), (0.5, 10)):
        found = []
        for _ in range(20):
            rise = sign * size / (1 + np.exp(-(np.arange(60) - 30) / 1.0))
            found.append(change_point(steps, flat(60, correlation, generator) + rise, n_random=99))
        at = [change.step for change in found if change.step is not None]
        assert len(at) >= 19 and 26 <= np.median(at) <= 31
        assert all(change.after == change.step - 1 for change in found if change.step is not None)
        onsets = [change.onset for change in found if change.onset is not None]
        assert 24 <= np.median(onsets) <= 31
    step = change_point([2**k for k in range(20)], [0.0, 0.1] * 6 + [sign * 5.0] * 8)
    assert (step.after, step.step) == (2**11, 2**12) and f"{2**11} and {2**12}" in step.headline


def test_a_smooth_growth_is_found() -> None:
    """Such as the gain on repeated tokens: what a straight rise leaves of it is smooth, and no sign of a flat curve."""
    grown = np.exp(np.linspace(-8, 1.6, 60)) + 0.02 * np.random.default_rng(3).normal(size=60)
    change = change_point(range(60), grown)
    assert change.p <= 0.01 and change.step is not None and change.step < 50 and change.onset in range(30, 55)


def test_what_returns_is_no_change() -> None:
    """A curve that leaves the band and comes back has not changed; nor has a constant one, nor one that leaves at the
    last snapshot."""
    bump = np.zeros(40) + 0.01 * np.random.default_rng(0).normal(size=40)
    bump[15:25] += 3
    assert change_point(range(40), bump).step is None
    assert change_point(range(40), np.ones(40)).step is None
    last = 0.01 * np.random.default_rng(0).normal(size=40)
    last[-1] += 3
    assert change_point(range(40), last).step is None
    with refused("12 steps", "got 3"):
        change_point(range(3), [1.0, 2.0, 3.0])
    with refused("finite"):
        change_point(range(20), [np.nan] * 20)


def at(step: int | None, after: int | None = None) -> ChangePoint:
    before = None if step is None else step // 2 if after is None else after
    return ChangePoint(step=step, after=before, onset=step, p=0.01, low=0.0, high=0.0)


def test_order_of_events_is_that_of_scipy_with_intervals_against_it() -> None:
    generator = np.random.default_rng(0)
    early = [int(100 * 2 ** generator.normal(0, 0.3)) for _ in range(8)]
    late = [int(step * 8 * 2 ** generator.normal(0, 0.2)) for step in early]
    same = [int(step * 1.2 * 2 ** generator.normal(0, 0.4)) for step in late]
    order = order_of_events({"a": [*map(at, early)], "b": [*map(at, late)], "c": [*map(at, same)]})
    assert [*map(tuple, np.argwhere(order.before))] == [(0, 1), (0, 2)], "b and c stay undecided"
    assert "a before b" in order.headline and order.n_seeds[0, 1] == 8
    against = np.log(early) - np.log([step // 2 for step in late])
    raw = 2 * scipy.stats.ttest_1samp(against, 0, alternative="less").pvalue
    other = 2 * scipy.stats.ttest_1samp(np.log(early) - np.log([s // 2 for s in same]), 0, alternative="less").pvalue
    assert order.p[0, 1] == pytest.approx(raw * 3 if raw < other else max(3 * other, 2 * raw))
    assert order.p[1, 0] == 1 and order.factor[0, 1] == pytest.approx(1 / order.factor[1, 0])
    frame = order.to_frame()
    assert len(frame) == 6 and frame.decided.sum() == 2
    # Within one interval nothing comes first, however often it is seen.
    tied = order_of_events({"a": [at(100, 10)] * 4 + [at(90, 10)] * 4, "b": [at(100, 20)] * 4 + [at(80, 20)] * 4})
    assert not tied.before.any() and tied.headline == "no order is decided"
    # Seeds that all change at the same snapshots leave t without a spread, and are as many signs.
    for n in (4, 8):
        identical = order_of_events({"a": [at(10)] * n, "b": [at(100, 90)] * n})
        assert identical.p[0, 1] == pytest.approx(scipy.stats.binomtest(n, n).pvalue) and identical.p[1, 0] == 1
        assert identical.before[0, 1] == (n == 8)
    missing = order_of_events({"a": [at(10), at(None)], "b": [at(99), at(99)]})
    assert missing.n_seeds[0, 1] == 1 and np.isnan(missing.factor[0, 1])
    with refused("two events", "a: 1"):
        order_of_events({"a": [at(1)]})


def test_half_way_is_where_a_sigmoid_is_put_and_nowhere_on_a_flat_curve() -> None:
    steps, generator = np.arange(0, 600, 10), np.random.default_rng(0)
    for middle in (150, 300, 405):
        for sign in (1, -1):
            curve = sign / (1 + np.exp(-(steps - middle) / 15)) + 0.01 * generator.normal(size=60)
            found = half_way(steps, curve)
            assert found.step is not None and found.after is not None
            assert found.after <= middle <= found.step and found.step - found.after == 10
    assert half_way(steps, generator.normal(size=60)).step is None
    back = 1 / (1 + np.exp(-(steps - 300) / 15.0))
    back[-1] = 0.4  # half is not made for good
    assert half_way(steps, back).step is None
