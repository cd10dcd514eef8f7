"""Superposition (*structures* §7): features in fewer dimensions, the pentagon of Example 26, and random projections.

Feature k is a row v_k of `[n_features, d]`. Writing x in those directions and reading it back gives x V Vᵀ: the
interference of feature k with feature j is ⟨v_j, v_k⟩, the off-diagonal of the Gram matrix. N unit vectors in d < N
dimensions cannot all be orthogonal: some |⟨v_j, v_k⟩| is at least √((N − d) / (d (N − 1))) (Welch 1974).

Example 26 has five features in two neurons:

    x̂(x) = ReLU(W₂ ReLU(W₁ x + b₁) + b₂),   W₁ = [v₁ … v₅],  W₂ = 1.5 W₁ᵀ,  b₂ = −W₂ b₁ − 0.5·1,
    v_k = (cos 2πk/5, sin 2πk/5),   b₁ = (0.82, 0.97)

The paper writes columns; here a row is an input, so W₁ is `[5, 2]` and W₂ `[2, 5]`. It finds e₁ erased on e₁ + e₃;
in fact both are, and e₂, which is not in the input, appears at 1.5·2·cos 72° − 0.5 ≈ 0.43.

Random projections keep lengths and angles (Theorem 27 and Corollary 28). For N points of R^n and 0 < ε < 1 some linear
map to m = O(log N / ε²) dimensions changes every squared distance by a factor within 1 ± ε. The map is the proof's,
f(z) = z R with random signs, divided by √m (the proof multiplies by √(1 + ε) as well, and gets a one-sided bound). The
proof there names no constants; the C of m = C · log N / ε² is fitted here, natural logarithm, with ε the largest
distortion over all pairs that a projection shows.

Corollary 28 bounds cosines by |cos θ_f − cos θ| ≤ 4ε/(1 − ε), and inner products by 3ε. It takes ε for norms as well as
for distances; so do we. It holds for unit vectors only: its proof's "the general case follows by normalizing" changes
the points whose distances ε is about, and with x many times as long as y both bounds fail now and then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_seed
from aotlens.models.weights import double
from aotlens.results import Result

GAIN = 1.5
THRESHOLD = 0.5
HIDDEN_BIAS = (0.82, 0.97)


@dataclass(frozen=True, kw_only=True, eq=False)
class Interference(Result):
    """The interference of n features in d dimensions."""

    gram: Float[Tensor, "feature feature"]
    """⟨v_j, v_k⟩."""
    lengths: Float[Tensor, " feature"]
    """‖v_k‖: near 0 for a feature that is not represented."""
    largest: float
    """max |cos| over pairs of features that are represented; 0 for fewer than two."""
    rms: float
    """Root mean square of those cosines."""
    welch_bound: float
    """The Welch bound: no n unit vectors have a smaller largest |cos|; 0 for n ≤ d."""


def interference(features: Float[Tensor, "feature d"], min_length: float = 1e-6) -> Interference:
    """Return the interference of the rows of `features`. O(features² · d)."""
    wide = double(features)
    gram = wide @ wide.T
    lengths = wide.norm(dim=1)
    long_gram = gram[lengths > min_length][:, lengths > min_length]
    n, d = len(long_gram), features.shape[1]
    pairs = _cosines(long_gram).flatten()
    return Interference(
        gram=gram,
        lengths=lengths,
        largest=float(pairs.abs().max()) if n > 1 else 0.0,
        rms=float((pairs.pow(2).sum() / (n * (n - 1))).sqrt()) if n > 1 else 0.0,
        welch_bound=math.sqrt((n - d) / (d * (n - 1))) if n > d else 0.0,
    )


def polygon(n: int) -> Float[Tensor, "n 2"]:
    """Return v_k = (cos 2πk/n, sin 2πk/n), k = 1 … n (*structures*, Example 26 for n = 5); float64."""
    angles = 2 * math.pi * torch.arange(1, n + 1, dtype=torch.float64) / n
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def random_features(n: int, d: int, seed: int = 0) -> Float[Tensor, "n d"]:
    """Draw n random unit vectors in d dimensions, float64: their cosines have mean 0 and variance 1/d."""
    drawn = torch.randn(n, d, generator=torch.Generator().manual_seed(require_seed(seed)), dtype=torch.float64)
    return drawn / drawn.norm(dim=1, keepdim=True)


def feature_network(
    x: Float[Tensor, "*batch n"], features: Float[Tensor, "n d"], bias: Float[Tensor, " n"]
) -> Float[Tensor, "*batch n"]:
    """Give x̂ = ReLU(x V Vᵀ + b): write, read back, suppress small interference (Elhage et al. 2022, "Toy models")."""
    return (x @ features @ features.T + bias).relu()


def train_features(
    n: int,
    d: int,
    *,
    probability: float | int = 0.05,
    steps: int = 2000,
    seed: int = 0,
    learning_rate: float | int = 0.02,
) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
    """Train V and b of `feature_network` to give back sparse inputs; returns both, detached, float32.

    Each of the `n` features is on with `probability`, uniform in (0, 1) where it is, and weighs the same; the loss is
    the mean squared error (Elhage et al. 2022). Some seconds on one core for n = 50.
    """
    generator = torch.Generator().manual_seed(require_seed(seed))
    features = (torch.randn(n, d, generator=generator) * d**-0.5).requires_grad_()
    bias = torch.zeros(n, requires_grad=True)
    optimiser = torch.optim.Adam([features, bias], lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        x = torch.rand(256, n, generator=generator) * (torch.rand(256, n, generator=generator) < probability)
        loss = (feature_network(x, features, bias) - x).pow(2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return features.detach(), bias.detach()


def _cosines(gram: Tensor) -> Tensor:
    """Return the cosines of a Gram matrix; 0 on the diagonal and where a vector is 0."""
    lengths = gram.diagonal().sqrt()
    products = lengths[:, None] * lengths
    cosines = torch.where(products > 0, gram / products.clamp(min=torch.finfo(gram.dtype).tiny), 0.0)
    return cosines - torch.diag(cosines.diagonal())


@dataclass(frozen=True, kw_only=True, eq=False)
class Pentagon(Result):
    """The network's four arrays, float64, inputs as rows."""

    W_1: Float[Tensor, "5 2"]
    b_1: Float[Tensor, " 2"]
    W_2: Float[Tensor, "2 5"]
    b_2: Float[Tensor, " 5"]

    def hidden(self, x: Float[Tensor, "*batch 5"]) -> Float[Tensor, "*batch 2"]:
        """Return the two neurons before their ReLU; it does nothing where they are positive, as for every single
        feature."""
        return x @ self.W_1 + self.b_1

    def before_output(self, x: Float[Tensor, "*batch 5"]) -> Float[Tensor, "*batch 5"]:
        """Return z, what the last ReLU gets: 1.5 ⟨v_j, v_k⟩ − 0.5 for e_k."""
        return self.hidden(x).relu() @ self.W_2 + self.b_2

    def __call__(self, x: Float[Tensor, "*batch 5"]) -> Float[Tensor, "*batch 5"]:
        return self.before_output(x).relu()


def pentagon() -> Pentagon:
    """Return the network with the paper's numbers. Feature k of the paper (from 1) is index k − 1."""
    W_1 = polygon(5)
    W_2, b_1 = GAIN * W_1.T, torch.tensor(HIDDEN_BIAS, dtype=torch.float64)
    return Pentagon(W_1=W_1, b_1=b_1, W_2=W_2, b_2=-b_1 @ W_2 - THRESHOLD)


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

    def to_frame(self) -> pd.DataFrame:
        """Return one row a projection."""
        return pd.DataFrame([asdict(projection) for projection in self.projections])

    def dimensions_for(self, n_points: int, epsilon: float) -> int:
        """Return m = C · log N / ε² with the fitted constant, rounded up.

        There the largest distortion of N points is about ε on average; about every other projection exceeds it.
        """
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

    Time: O(trials · Σ (N · n · m + N² · (n + m))); memory O(N²).
    """
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
    """Project `points` to m dimensions and compare all pairs."""
    n, dimension = points.shape
    before, after = points.double(), points.double() @ random_projection(dimension, m, seed)
    pairs = torch.triu_indices(n, n, 1)
    d_before, d_after = (_squared_distances(x)[pairs[0], pairs[1]] for x in (before, after))
    n_before, n_after = (x.pow(2).sum(1) for x in (before, after))
    ratios = d_after / d_before - 1
    distortion = float(torch.cat([ratios, n_after / n_before - 1]).abs().max())
    angles = (_point_cosines(before) - _point_cosines(after))[pairs[0], pairs[1]]
    lengths = before.norm(dim=1)
    inner = (after @ after.T / (lengths[:, None] * lengths) - _point_cosines(before))[pairs[0], pairs[1]]
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


def _point_cosines(x: Tensor) -> Tensor:
    unit = x / x.norm(dim=1, keepdim=True)
    return unit @ unit.T
