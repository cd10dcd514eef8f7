"""Algorithms that a model's layers may run: steps of gradient descent and of a preconditioned one, for every prefix.

With H = XᵀX/i and g = Xᵀy/i of the i examples before a query, and w_0 = 0,

    gradient         w ← w + η (g − H w)                    after k steps w_k = q(H) g, q(λ) = (1 − (1 − ηλ)^k)/λ
    preconditioned   w ← w + η (I − γ H)(g − H w)           the same with ηλ(1 − γλ) for ηλ

The second is gradient descent on inputs that were transformed by I − γH first ("GD++", von Oswald et al. 2023). Both
are filters of H's spectrum, so one eigendecomposition a prefix serves every step size: η and γ are those of a grid that
do best for each k and i, on prompts of their own, among those that stay stable on others. Without that the best on 512
prompts of five dimensions did badly on new ones, since a prompt whose H has a larger eigenvalue than any before blows
the steps up: six preconditioned steps had 2.7 times the zero predictor's error there, now 0.29. So none is taken with
which any part of w would grow more than threefold in all k steps, for eigenvalues up to a quarter above the largest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.data import RegressionPrompts

#: The algorithms by name, and the values of γ, in units of 1 ÷ the mean largest eigenvalue of H, that each may take.
_FACTORS = {"gradient": (0.0,), "preconditioned": (0.0, 0.2, 0.4, 0.6, 0.8, 0.95)}
ALGORITHMS = tuple(_FACTORS)
_STEP_SIZES = torch.linspace(0.1, 5.0, 50, dtype=torch.float64)  # in the same units
#: The largest growth of a part of w in all steps, for eigenvalues up to so many times the largest of the prompts.
_MOST_GROWTH, _BEYOND = 3.0, 1.25


@dataclass(frozen=True, kw_only=True, eq=False)
class Spectra:
    """The eigenvalues of every prefix's H, with the gradient at 0 and the query along its eigenvectors."""

    eigenvalues: Float[Tensor, "prompt point d"]
    gradient: Float[Tensor, "prompt point d"]
    query: Float[Tensor, "prompt point d"]
    labels: Float[Tensor, "prompt point"]

    @classmethod
    def of(cls, prompts: RegressionPrompts) -> Spectra:
        """Compute the spectra of prompts. Before the first example H and g are 0. Memory: a d × d matrix a prompt and
        point, float64."""
        inputs, labels = prompts.inputs.double(), prompts.labels.double()
        counts = torch.arange(inputs.shape[1], dtype=torch.float64).clamp(min=1)[:, None]

        def before(sums: Tensor) -> Tensor:
            return torch.cat([torch.zeros_like(sums[:, :1]), sums.cumsum(1)[:, :-1]], 1)

        second = before(inputs[..., :, None] * inputs[..., None, :]) / counts[..., None]
        gradient = before(labels[..., None] * inputs) / counts
        eigenvalues, vectors = torch.linalg.eigh(second)

        def along(rows: Tensor) -> Tensor:
            return (vectors.mT @ rows[..., None])[..., 0]

        return cls(eigenvalues=eigenvalues.clamp(min=0), gradient=along(gradient), query=along(inputs), labels=labels)

    @property
    def unit(self) -> Float[Tensor, " point"]:
        """The mean over prompts of H's largest eigenvalue; 1 before the first example."""
        largest = self.eigenvalues[..., -1].mean(0)
        return torch.where(largest > 0, largest, 1.0)

    def estimates(
        self, n_steps: int, step_size: Float[Tensor, " point"], factor: Float[Tensor, " point"]
    ) -> Float[Tensor, "prompt point"]:
        """Return x·w_k after `n_steps` steps of size η with γ = `factor`, one of each a point."""
        slope = step_size[:, None] * (1 - factor[:, None] * self.eigenvalues)
        left = (1 - slope * self.eigenvalues) ** n_steps
        filtered = torch.where(
            self.eigenvalues > 1e-12, (1 - left) / self.eigenvalues.clamp(min=1e-12), n_steps * slope
        )
        return (filtered * self.gradient * self.query).sum(-1)


@dataclass(frozen=True, kw_only=True, eq=False)
class FittedDescent:
    """The best η and γ of an algorithm for every number of steps and examples."""

    step_sizes: Float[Tensor, "step point"]
    """The best η for 1, 2, … steps."""
    factors: Float[Tensor, "step point"]
    """The best γ for 1, 2, … steps."""

    def estimates(self, spectra: Spectra) -> Float[Tensor, "step prompt point"]:
        """Return x·w_k for k = 1, 2, …"""
        each = zip(self.step_sizes, self.factors, strict=True)
        return torch.stack([spectra.estimates(k, size, factor) for k, (size, factor) in enumerate(each, start=1)])


def fit_descent(algorithm: str, spectra: Spectra, n_steps: int) -> FittedDescent:
    """Return the η and γ with the least mean squared error on the prompts of `spectra`, for 1 to `n_steps` steps, among
    those that stay stable on others, as at the head of this module.

    Raises `ValueError` for an algorithm that is not in `ALGORITHMS`. Time: O(50 · 6 · steps · prompts · points · d).
    """
    if algorithm not in _FACTORS:
        raise ValueError(f"no algorithm {algorithm!r}; there are {', '.join(ALGORITHMS)}.")
    unit, largest = spectra.unit, _BEYOND * spectra.eigenvalues[..., -1].amax(0)
    sizes, factors = [], []
    for k in range(1, n_steps + 1):
        best = torch.full_like(unit, torch.inf)
        size, factor = torch.zeros_like(unit), torch.zeros_like(unit)
        for relative_factor in _FACTORS[algorithm]:
            for relative_size in _STEP_SIZES:
                tried = (relative_size / unit, relative_factor / unit)
                loss = (spectra.estimates(k, *tried) - spectra.labels).pow(2).mean(0)
                loss = torch.where(_growth(*tried, largest) ** k <= _MOST_GROWTH, loss, torch.inf)
                better = loss < best
                best = torch.where(better, loss, best)
                size, factor = torch.where(better, tried[0], size), torch.where(better, tried[1], factor)
        sizes.append(size)
        factors.append(factor)
    return FittedDescent(step_sizes=torch.stack(sizes), factors=torch.stack(factors))


def _growth(
    step_size: Float[Tensor, " point"], factor: Float[Tensor, " point"], largest: Float[Tensor, " point"]
) -> Float[Tensor, " point"]:
    """The most that one step multiplies a part of w's error by, max |1 − ηλ(1 − γλ)| over 0 ≤ λ ≤ `largest`.

    ηλ(1 − γλ) is a parabola: 0 at λ = 0, and extreme at `largest` or at its vertex, λ = 1/(2γ).
    """
    at_largest = 1 - step_size * largest * (1 - factor * largest)
    vertex = torch.where(2 * factor * largest > 1, 1 - step_size / (4 * factor.clamp(min=1e-12)), 1.0)
    return torch.maximum(at_largest.abs(), vertex.abs()).clamp(min=1)
