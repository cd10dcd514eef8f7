"""Change points on curves with a known change, and on flat ones; orders of events that are known, or are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.signal
import scipy.stats

from aotlens.dynamics import ChangePoint, change_point, half_way, order_of_events
from tests.messages import refused, says


def flat(n: int, correlation: float, generator: np.random.Generator) -> np.ndarray:
    """Stationary noise whose neighbours correlate, as scipy filters it, after a thousand draws to forget its start."""
    draws = generator.normal(size=1000 + n) * np.sqrt(1 - correlation**2)
    filtered: np.ndarray = scipy.signal.lfilter([1.0], [1.0, -correlation], draws)
    return filtered[1000:]


def growing(n: int, generator: np.random.Generator) -> np.ndarray:
    """Noise that grows from a seventh of its last size, as nothing moves at the beginning of a training."""
    return flat(n, 0.5, generator) * np.linspace(0.3, 2, n)


def bursting(n: int, generator: np.random.Generator) -> np.ndarray:
    """Noise that is loud at some times and quiet at others."""
    return flat(n, 0.5, generator) * np.exp(0.8 * flat(n, 0.8, generator))


@pytest.mark.long
@pytest.mark.parametrize("noise", [0.5, 0.8, growing, bursting])
def test_flat_curves_raise_few_false_alarms(noise: Any) -> None:
    generator = np.random.default_rng(0)
    curves = (noise(60, generator) if callable(noise) else flat(60, noise, generator) for _ in range(150))
    assert np.mean([change_point(range(60), curve).step is not None for curve in curves]) <= 0.05


@pytest.mark.long
@pytest.mark.parametrize(("n", "noise"), [(60, 0.9), (20, 0.9)])
def test_the_most_correlated_flat_curves_raise_few_false_alarms(n: int, noise: Any) -> None:
    """1,500 curves, with a standard error of .6%."""
    generator = np.random.default_rng(0)
    curves = (noise(n, generator) if callable(noise) else flat(n, noise, generator) for _ in range(1500))
    alarms = [change_point(range(n), curve).step is not None for curve in curves]
    print(f"{np.mean(alarms):.3f} of {len(alarms)} flat curves of {n} snapshots have a change point, noise {noise}")
    assert np.mean(alarms) <= 0.05


def lasting(shape: int, n: int, generator: np.random.Generator) -> np.ndarray:
    """A curve that is 0, then leaves 0 for good without rising or falling steadily; its largest value is about 1."""
    places, begin = np.arange(n), generator.integers(n // 6, n // 3)
    top, end = begin + generator.integers(2, n // 4), generator.uniform(0.25, 0.6)
    since = places - begin
    curve: np.ndarray = (
        np.interp(places, [begin, top, n - 1], [0, 1, end]),  # rises, and falls in part
        np.interp(places, [begin, top, top + (n - top) // 2, n - 1], [0, 1, end, 1]),  # falls in part, and rises again
        np.where(since >= 0, end + (1 - end) * np.exp(-since / (n / 8)), 0),  # jumps, and decays
        np.where(since >= 0, 0.6 + 0.36 * np.cos(since / (n / 20)) * np.exp(-since / (n / 4)), 0),  # rings
        np.interp(places, [begin, top, top + (n - top) // 3, n - 1], [0, -0.5, 0, 1]),  # first goes the other way
    )[shape]
    return generator.choice([-1, 1]) * curve


@pytest.mark.parametrize(
    ("size", "least"), [(30, 0.95), (10, 0.55)], ids=["30 to 90 times the noise", "10 to 30 times"]
)
@pytest.mark.long
def test_lasting_changes_that_are_not_monotone_are_found(size: float, least: float) -> None:
    generator = np.random.default_rng(2)
    found = [
        change_point(
            range(60),
            lasting(number % 5, 60, generator)
            + flat(60, (0.0, 0.5, 0.8)[number % 3], generator) / (size * generator.choice([1, 3])),
            n_random=99,
        ).step
        is not None
        for number in range(500)
    ]
    print(f"{np.mean(found):.3f} of {len(found)} changes of {size} to {3 * size} times the noise are found")
    assert np.mean(found) >= least


def test_a_curve_that_rises_and_falls_in_part_has_changed() -> None:
    """It stays 200 standard deviations of its noise away from where it was, though it is not monotone."""
    noise = np.random.default_rng(0).normal(size=60) * 0.01
    curve = np.r_[np.zeros(20), np.linspace(0, 5, 10), np.linspace(5, 2, 30)] + noise
    change = change_point(range(60), curve)
    assert change.step in (20, 21, 22) and change.p <= 0.05
    says(change_point(range(60), noise).headline, "no lasting change found (p = ")
    swinging = np.r_[np.zeros(20), 3 + 2 * np.sin(np.arange(40))] + noise  # for good, and never at rest again
    assert change_point(range(60), swinging).step in (19, 20, 21)


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
        np.testing.assert_array_equal(identical.sign_p, identical.p)
    # Seeds one snapshot apart are alike by the grid: t says less than .001 and the sign test of 8 seeds what 8 can say.
    grid = order_of_events({"a": [at(s, s - 1) for s in (10, 11) * 4], "b": [at(s, s - 1) for s in (90, 91) * 4]})
    assert grid.p[0, 1] < 1e-12 and grid.sign_p is not None and grid.sign_p[0, 1] == pytest.approx(2 / 2**8)
    says(grid.headline, "a before b (p < .001, sign test p = 0.0078, 8 seeds)")
    # Where a seed is the other way round, and one overlaps.
    mixed = {
        "a": [at(s, s - 1) for s in (10, 12, 11, 14, 90, 50)],
        "b": [at(s, s - 1) for s in (80, 70, 90, 95, 60, 50)],
    }
    signs = order_of_events(mixed).sign_p
    assert signs is not None and signs[0, 1] == pytest.approx(scipy.stats.binomtest(4, 5).pvalue) and signs[1, 0] == 1
    # Two seeds decide nothing, however alike they are.
    two = order_of_events({"a": [at(10, 9), at(11, 10)], "b": [at(900, 890), at(990, 980)]})
    assert not two.before.any() and two.n_seeds[0, 1] == 2 and two.to_frame().sign_p.eq(1).all()
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
