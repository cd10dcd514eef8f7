"""Counts of rows that are not true, in texts of several kinds: what a test's level is measured on.

A window of unit length holds Poisson(5) places of the destination, uniformly. The source's occurrences are a Poisson
process of rate λ_w, so that it has been seen at a place u with probability 1 − e^(−λ_w·u); the out follows a place with
probability π_w, whether it has or not. What differs between kinds of text is how λ_w and π_w vary; in `documents` and
`drift` both follow what the text is about, g ~ N(0, 0.7²): λ_w ∝ e^g, logit π_w = constant ± g, + for rows that are
asked whether the out is raised and − for those that are asked whether it is suppressed, so that g tells for them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.signal import lfilter
from scipy.special import expit

from aotlens.trigrams.counting import Strata, StrataCounter, window_sums

WINDOWS = 8  # of a stratum
PLACES = 5.0
SPREAD = 0.7  # standard deviation of g


class Text(NamedTuple):
    """A kind of text: "iid"; "bursty", where windows are full of the out or without it; "documents", `size` of them; or
    "drift", where the correlation of g falls by e in `size` windows."""

    kind: str
    size: int = 0


def null_strata(
    text: Text, source: float, out: float, n_strata: int, n_rows: int, rng: np.random.Generator, *, upwards: bool
) -> Strata:
    """Strata of `n_rows` rows, asked whether the out is raised (`upwards`) or suppressed: the source has been seen at a
    share `source` of the places, and the out follows a share `out` of them."""
    parts = [_some_rows(text, source, out, n_strata, rows, rng, upwards) for rows in _portions(n_rows, 200)]
    offsets = np.cumsum([0, *(part.n_rows for part in parts[:-1])])
    cells = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("places", "with_source", "followed", "both", "variance", "variance_squared")
    }
    row = np.concatenate([part.row + offset for part, offset in zip(parts, offsets, strict=True)])
    return Strata(n_rows=n_rows, row=row, **cells)


def _portions(total: int, most: int) -> list[int]:
    return [min(most, total - begin) for begin in range(0, total, most)]


def _some_rows(
    text: Text, source: float, out: float, n_strata: int, n_rows: int, rng: np.random.Generator, upwards: bool
) -> Strata:
    n_windows = n_strata * WINDOWS
    rate, p_out = _rates(text, source, out, (n_rows, n_windows), rng, upwards)
    places = rng.poisson(PLACES, (n_rows, n_windows))
    first = rng.exponential(size=places.shape) / np.maximum(rate, 1e-12)
    with_source = rng.binomial(places, np.clip(1 - first, 0, 1))
    both = rng.binomial(with_source, p_out)
    followed = both + rng.binomial(places - with_source, p_out)
    counter = StrataCounter(n_rows)
    counter.add(window_sums(both, with_source, followed, places), np.arange(n_windows) // WINDOWS)
    return counter.strata()


def _rates(
    text: Text, source: float, out: float, shape: tuple[int, int], rng: np.random.Generator, upwards: bool
) -> tuple[np.ndarray, np.ndarray]:
    """λ_w and π_w."""
    if text.kind == "iid":
        return np.full(shape, _rate_of(source, np.zeros(1))), np.full(shape, out)
    if text.kind == "bursty":
        # The out in a few windows that are full of it; the source likewise, of its own accord.
        p_out = np.where(rng.random(shape) < out / 0.7, 0.7, 0.0)
        rate = _rate_of(source, np.log([0.1, 0.1, 10.0]))
        return rate * np.where(rng.random(shape) < 1 / 3, 10.0, 0.1), p_out
    g = _topics(text, shape, rng)
    nodes, weights = np.polynomial.hermite_e.hermegauss(31)
    nodes = SPREAD * nodes
    logit = brentq(lambda c: np.average(expit(c + nodes), weights=weights) - out, -12, 12)
    return _rate_of(source, nodes, weights) * np.exp(g), expit(logit + (g if upwards else -g))


def _topics(text: Text, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    n_rows, n_windows = shape
    if text.kind == "documents":
        return SPREAD * rng.standard_normal((n_rows, text.size))[:, np.arange(n_windows) * text.size // n_windows]
    memory = np.exp(-1 / text.size)
    steps = rng.standard_normal(shape) * np.sqrt(1 - memory**2)
    steps[:, 0] /= np.sqrt(1 - memory**2)
    return SPREAD * lfilter([1.0], [1.0, -memory], steps, axis=1)


def _rate_of(source: float, log_factor: np.ndarray, weights: np.ndarray | None = None) -> float:
    """λ for which the source has been seen at a share `source` of places, over the factors that it is varied by."""

    def share(log_rate: float) -> float:
        rate = np.exp(log_rate + log_factor)
        return float(np.average(1 + np.expm1(-rate) / rate, weights=weights))

    return float(np.exp(brentq(lambda log_rate: share(log_rate) - source, -12, 12)))
