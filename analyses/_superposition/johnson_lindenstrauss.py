"""Random projections keep lengths and angles: measured, against ε (*structures*, Theorem 27 and Corollary 28).

For N points of R^n and 0 < ε < 1 some linear map to m = O(log N / ε²) dimensions changes every squared distance by a
factor within 1 ± ε. The map here is the proof's, f(z) = z R with random signs, divided by √m (the proof multiplies by
√(1 + ε) as well, and gets a one-sided bound). The proof there names no constants; what stands here is fitted: the C of
m = C · log N / ε², natural logarithm, with ε the largest distortion over all pairs that a projection shows.

Corollary 28 bounds cosines by |cos θ_f − cos θ| ≤ 4ε/(1 − ε), and inner products by 3ε. It takes ε for norms as well as
for distances; so do we. It holds for unit vectors only: its proof's "the general case follows by normalizing" changes
the points whose distances ε is about, and with x many times as long as y both bounds fail now and then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_seed
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Projection(Result):
    """One random projection of one cloud of points."""

    n_points: int
    dimension: int
    """The dimension n, where the points are."""
    m: int
    """The dimension that they are projected to."""
    seed: int
    distortion: float | int
    """ε: the largest |‖f(x) − f(y)‖² / ‖x − y‖² − 1| over pairs, and of norms, |‖f(x)‖² / ‖x‖² − 1|."""
    rms_distortion: float | int
    """Root mean square over pairs; √(2/m) for random signs, to leading order."""
    angle_error: float | int
    """The largest |cos θ_f − cos θ| over pairs."""
    angle_bound: float | int
    """Corollary 28's 4ε/(1 − ε) for this ε, which holds for points of length 1; ∞ for ε ≥ 1."""
    inner_error: float | int
    """The largest |⟨f(x), f(y)⟩ − ⟨x, y⟩| over pairs, x and y scaled to length 1; Corollary 28's bound, for
    points of that length, is 3ε."""
    constant: float | int
    """C = m · ε² / log N."""


@dataclass(frozen=True, kw_only=True)
class JohnsonLindenstrauss(Result):
    """Projections of clouds of several sizes to several dimensions."""

    projections: tuple[Projection, ...]
    constant: float | int
    """C of m = C · log N / ε², fitted: the mean of m ε² / log N over projections with ε < 1."""
    exponent: float | int
    """The slope of log ε against log m within clouds of one size, by least squares over the same projections. The
    theorem's m ∝ 1/ε² is −1/2; it is steeper for small m, where squared lengths are skewed (χ²)."""

    @property
    def headline(self) -> str:
        return f"m = {self.constant:.3g} · log N / ε², fitted; ε falls as m^{self.exponent:.3f}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a projection."""
        import pandas as pd

        return pd.DataFrame([asdict(projection) for projection in self.projections])

    def dimensions_for(self, n_points: int, epsilon: float) -> int:
        """Return m = C · log N / ε² with the fitted constant, rounded up.

        There the largest distortion of N points is about ε on average; about every other projection exceeds it. Raises
        `ValueError` for fewer than 2 points and ε outside (0, 1).
        """
        if n_points < 2 or not 0 < epsilon < 1:
            raise ValueError(f"expected at least 2 points and 0 < ε < 1, got {n_points} and {epsilon}.")
        return math.ceil(self.constant * math.log(n_points) / epsilon**2)


def random_projection(dimension: int, m: int, seed: int = 0) -> Float[Tensor, "dimension m"]:
    """Draw independent ±1/√m, float64, so that squared lengths are right in expectation."""
    signs = torch.randint(0, 2, (dimension, m), generator=torch.Generator().manual_seed(require_seed(seed)))
    return (2 * signs - 1).double() / math.sqrt(m)


def johnson_lindenstrauss(
    n_points: Sequence[int] = (50, 200, 800),
    m: Sequence[int] = (64, 128, 256, 512),
    *,
    dimension: int = 1000,
    n_trials: int = 3,
    seed: int = 0,
) -> JohnsonLindenstrauss:
    """Project clouds of random unit vectors and measure how much every pair is distorted.

    Every cloud and every projection is drawn for itself.

    Time: O(trials · Σ (N · n · m + N² · (n + m))); memory O(N²). Raises `ValueError` for fewer than 2 points, sizes or
    trials below 1, and a single m, which fits no slope.
    """
    if min(n_points, default=0) < 2 or min(m, default=0) < 1 or min(dimension, n_trials) < 1 or len(set(m)) < 2:
        raise ValueError(
            f"johnson_lindenstrauss: expected clouds of at least 2 points, two different m ≥ 1, dimension and trials "
            f"≥ 1; got n_points={list(n_points)}, m={list(m)}, dimension={dimension}, n_trials={n_trials}."
        )
    projections: list[Projection] = []
    generator = torch.Generator().manual_seed(require_seed(seed))
    for _ in range(n_trials):
        for n in n_points:
            points = torch.randn(n, dimension, generator=generator, dtype=torch.float64)
            points = points / points.norm(dim=1, keepdim=True)  # as Corollary 28 has them
            for size in m:
                projections.append(measure_projection(points, size, seed + 1 + len(projections)))
    constant, exponent = _fit([projection for projection in projections if projection.distortion < 1])
    return JohnsonLindenstrauss(projections=tuple(projections), constant=constant, exponent=exponent)


def _fit(projections: Sequence[Projection]) -> tuple[float, float]:
    """The mean constant, and the slope of log ε against log m; NaN where there is nothing to fit."""
    if not projections:
        return math.nan, math.nan
    x = torch.tensor([math.log(p.m) for p in projections], dtype=torch.float64)
    y = torch.tensor([math.log(p.distortion) for p in projections], dtype=torch.float64)
    for n in {p.n_points for p in projections}:
        same = torch.tensor([p.n_points == n for p in projections])
        x[same] -= x[same].mean()
        y[same] -= y[same].mean()
    slope = float((x * y).sum() / (x * x).sum()) if bool(x.any()) else math.nan
    return sum(p.constant for p in projections) / len(projections), slope


def measure_projection(points: Float[Tensor, "n dimension"], m: int, seed: int) -> Projection:
    """Project `points` to m dimensions and compare all pairs. Raises `ValueError` for equal or zero points."""
    n, dimension = points.shape
    before, after = points.double(), points.double() @ random_projection(dimension, m, seed)
    pairs = torch.triu_indices(n, n, 1)
    d_before, d_after = (_squared_distances(x)[pairs[0], pairs[1]] for x in (before, after))
    n_before, n_after = (x.pow(2).sum(1) for x in (before, after))
    if not bool((d_before > 0).all() and (n_before > 0).all()):
        raise ValueError("expected points that differ from each other and from 0.")
    ratios = d_after / d_before - 1
    distortion = float(torch.cat([ratios, n_after / n_before - 1]).abs().max())
    angles = (_cosines(before) - _cosines(after))[pairs[0], pairs[1]]
    lengths = before.norm(dim=1)
    inner = (after @ after.T / (lengths[:, None] * lengths) - _cosines(before))[pairs[0], pairs[1]]
    return Projection(
        n_points=n,
        dimension=dimension,
        m=m,
        seed=seed,
        distortion=distortion,
        rms_distortion=float(ratios.pow(2).mean().sqrt()),
        angle_error=float(angles.abs().max()),
        angle_bound=4 * distortion / (1 - distortion) if distortion < 1 else math.inf,
        inner_error=float(inner.abs().max()),
        constant=m * distortion**2 / math.log(n),
    )


def _squared_distances(x: Tensor) -> Tensor:
    squares = x.pow(2).sum(1)
    return (squares[:, None] + squares - 2 * x @ x.T).clamp(min=0)


def _cosines(x: Tensor) -> Tensor:
    unit = x / x.norm(dim=1, keepdim=True)
    return unit @ unit.T
