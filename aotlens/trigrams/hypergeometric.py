"""The tail of a sum of independent hypergeometrics, exact to rounding however small it is.

In stratum b, y_b of m_b places are marked and x_b of the places are drawn without replacement, so that the number of
marked ones drawn is hypergeometric; S is the sum over strata. Multiplying probabilities out keeps small tails but costs
strata × support²; a Fourier transform is fast but loses tails below 1e-16. Here S is tilted first: with
K(θ) = log E e^{θS} and θ ≥ 0 such that the tilted mean K'(θ) is a,

    P(S ≥ a) = e^{K(θ) − θa} · Σ_{s ≥ a} P_θ(S = s) · e^{−θ(s − a)},        P_θ(S = s) = e^{θs − K(θ)} P(S = s),

and P_θ, which is largest about a, comes from the product of the strata's characteristic functions at N roots of unity.
These give P_θ wrapped around modulo N. A hypergeometric is a sum of independent Bernoulli variables (Vatutin and
Mikhailov 1982), tilted or not, so Bernstein's inequality bounds what lies outside of N values about the mean: N is
chosen for less than 1e-18. Both that and the transform's rounding are relative to the largest P_θ, hence to the tail.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64
from scipy.special import gammaln

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
    """θ ≥ 0, K(θ), the strata's tilted probabilities, and mean and variance of the tilted sum, its mean about `wanted`.

    Newton's steps, halved where they leave the bracket; a quarter of a standard deviation is near enough.
    """
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
