"""The exact test's tail against rational arithmetic."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy import stats

from aotlens.trigrams.hypergeometric import upper_tail


def tail_by_fractions(m: list[int], x: list[int], y: list[int], a: int) -> Fraction:
    ways, everything = [1], 1
    for places, drawn, marked in zip(m, x, y, strict=True):
        one = [comb(marked, k) * comb(places - marked, drawn - k) for k in range(min(drawn, marked) + 1)]
        both = [0] * (len(ways) + len(one) - 1)
        for i, first in enumerate(ways):
            for j, second in enumerate(one):
                both[i + j] += first * second
        ways, everything = both, everything * comb(places, drawn)
    return Fraction(sum(ways[max(a, 0) :]), everything)


def test_tails_of_every_size_to_rounding(rng) -> None:
    smallest = 1.0
    for _ in range(150):
        n = int(rng.integers(1, 15))
        m = rng.integers(1, 40, n)
        x = rng.binomial(m, rng.choice([0.02, 0.3, 0.95]))
        y = rng.binomial(m, rng.choice([0.05, 0.3, 0.9]))
        low, high = int(np.maximum(0, x + y - m).sum()), int(np.minimum(x, y).sum())
        for a in {low - 1, low, high, high + 1, int(rng.integers(low, high + 1))}:
            expected = float(tail_by_fractions(m.tolist(), x.tolist(), y.tolist(), a))
            assert upper_tail(m, x, y, a) == pytest.approx(expected, rel=1e-11)
            smallest = min(smallest, expected or 1.0)
            below = 1 - tail_by_fractions(m.tolist(), x.tolist(), y.tolist(), a + 1)
            assert upper_tail(m, x, m - y, int(x.sum()) - a) == pytest.approx(float(below), rel=1e-11)
    assert smallest < 1e-30  # a Fourier transform alone would give 1e-17


def test_one_stratum_is_fishers(rng) -> None:
    for _ in range(50):
        m = int(rng.integers(50, 5000))
        x, y = int(rng.integers(1, m)), int(rng.integers(1, m))
        a = int(np.clip(x * y / m + rng.normal() * 8, max(0, x + y - m), min(x, y)))
        expected = stats.hypergeom.sf(a - 1, m, y, x)
        assert upper_tail(*(np.array([part]) for part in (m, x, y)), a) == pytest.approx(expected, rel=1e-8)


def test_many_strata_far_from_the_mean(rng) -> None:
    """400 strata of one kind: S is a sum of equal terms, whose probabilities can be multiplied out by squaring."""
    m, x, y = 30, 9, 7
    one = stats.hypergeom.pmf(np.arange(8), m, y, x)
    ways = np.array([1.0])
    for bit in f"{400:b}":
        ways = np.convolve(ways, ways)
        ways = np.convolve(ways, one) if bit == "1" else ways
    parts = [np.full(400, part) for part in (m, x, y)]
    for a in (700, 840, 900, 1000, 1300):
        assert upper_tail(*parts, a) == pytest.approx(ways[a:].sum(), rel=1e-9)


def test_wide_strata_that_lie_far_apart() -> None:
    """Strata of thousands of values, most of them negligible, at different places."""
    m, x, y = np.array([6000, 5000]), np.array([3100, 400]), np.array([2900, 4800])
    first, second = (
        stats.hypergeom.pmf(np.arange(drawn + 1), places, marked, drawn)
        for places, drawn, marked in zip(m.tolist(), x.tolist(), y.tolist(), strict=True)
    )
    sums = np.convolve(first, second)
    mean = int((x * y / m).sum())
    for a in (mean - 40, mean, mean + 60, mean + 250):
        assert upper_tail(m, x, y, a) == pytest.approx(sums[a:].sum(), rel=1e-8)
