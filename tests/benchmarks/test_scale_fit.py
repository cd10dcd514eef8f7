"""The fit of cost against size, on costs whose law is known."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks._scale.fit import fit_power

SIZES = 2.0 ** np.arange(10, 17)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.7])
def test_an_exact_power_is_found(exponent: float) -> None:
    curve = fit_power(SIZES, 3e-7 * SIZES**exponent)
    assert curve is not None and curve.n_points == 7
    assert curve.exponent == pytest.approx(exponent, abs=1e-6)
    assert curve.low <= exponent <= curve.high < curve.low + 0.02
    assert curve.at(2.0**20) == pytest.approx(3e-7 * 2.0 ** (20 * exponent), rel=1e-4)


def test_what_a_call_costs_does_not_pull_the_exponent_down() -> None:
    """0.5 s + 3 ns · V²: a straight line through the logarithms would give 0.9."""
    costs = 0.5 + 3e-9 * SIZES**2
    assert np.polyfit(np.log(SIZES), np.log(costs), 1)[0] < 1.1
    curve = fit_power(SIZES, costs)
    assert curve is not None and curve.exponent == pytest.approx(2, abs=1e-4)
    assert curve.constant == pytest.approx(0.5, rel=1e-3)
    middle, low, high = curve.log_of(2.0**18)
    assert low <= middle <= high and middle == pytest.approx(np.log(0.5 + 3e-9 * 2.0**36), abs=1e-3)
    growth, low, high = curve.log_growth(SIZES[0], 2.0**18)
    assert low <= growth <= high and growth == pytest.approx(middle - np.log(costs[0]), abs=1e-3)


def test_a_cost_that_does_not_grow_has_exponent_0() -> None:
    curve = fit_power(SIZES, np.full(7, 0.25))
    assert curve is not None and curve.exponent == pytest.approx(0, abs=0.01)
    assert curve.low < 0.01 < curve.high + 0.01
    assert curve.at(2.0**18) == pytest.approx(0.25, rel=0.02)


@pytest.mark.parametrize(("constant", "spread"), [(0.0, 0.1), (0.02, 0.03), (0.5, 0.1)])
def test_intervals_cover(constant: float, spread: float) -> None:
    """Of 120 series with log-normal scatter, as many sizes and points as measured ones: 95% ± three standard errors."""
    generator = np.random.default_rng(int(1000 * (constant + spread)))
    law = constant + 3e-9 * SIZES**2
    beyond = np.log(constant + 3e-9 * 2.0**36)
    inside = np.zeros(2)
    for _ in range(120):
        curve = fit_power(SIZES, law * np.exp(spread * generator.standard_normal(7)))
        assert curve is not None
        _, low, high = curve.log_of(2.0**18)
        inside += [curve.low <= 2 <= curve.high, low <= beyond <= high]
    assert (inside / 120 >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 120)).all(), inside
    assert (inside / 120 < 1).any(), "intervals that always cover say nothing"


def test_few_points_are_not_fitted_and_nonsense_is_refused() -> None:
    assert fit_power(SIZES[:4], SIZES[:4]) is None
    with pytest.raises(ValueError, match="positive costs"):
        fit_power([1, 2, 3, 4, 5], [1, 2, 0, 4, 5])
    with pytest.raises(ValueError, match="as many"):
        fit_power([1, 2], [1])
