"""Bayes-optimal denoisers, what they lose, and simpler estimators (*in-context-denoising* §2.3, C).

With x̃ = x + N(0, σ_Z² I), the least expected squared error is the posterior mean's (Proposition 1). Every predictor
here knows the distribution that the prompt was drawn from; a layer has only its context. Losses are squared errors
summed over the n coordinates, as in the paper's text (its plots divide by n = 16).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy import integrate, special, stats
from torch import Tensor

from aotlens.conventions import require_seed, require_whole
from aotlens.denoise.tasks import GaussianMixtures, LinearSubspaces, Prompts, Spheres, Task
from aotlens.results import Result

_UNDERFLOW = 1e-280  # below it ive's own rounding is no longer relative
_TERMS = 40  # of the continued fraction; it is used where κ is far below the order, and converges geometrically there


@dataclass(frozen=True, kw_only=True)
class ExpectedLoss(Result):
    """An expected squared error a prompt, summed over n coordinates."""

    value: float
    standard_error: float
    """The standard error over prompts, where it was found by simulation; 0 where it is exact."""
    method: str
    """`"closed form"`, `"quadrature"` or `"simulation"`."""


def bessel_ratio(kappa: np.ndarray | float, d: int) -> np.ndarray:
    """Return I_{(d+1)/2}(κ) / I_{(d−1)/2}(κ), the length of the mean of e^{κ cos θ} on the d-sphere, in [0, 1).

    Scaled Bessel functions (`scipy.special.ive`), whose common factor e^κ cancels; where both would underflow, which is
    for κ far below d, the continued fraction I_{ν+1}/I_ν = 1/(2(ν+1)/κ + 1/(2(ν+2)/κ + …)), whose first term is the
    series κ/(d + 1). Relative error below 1e-10 for κ in [0, 10⁸] and d ≤ 512.

    Raises `ValueError` for κ that is negative or not finite, and d below 1.
    """
    kappa = np.asarray(kappa, dtype=np.float64)
    if d < 1 or not np.all(np.isfinite(kappa) & (kappa >= 0)):
        raise ValueError("bessel_ratio: expected finite κ ≥ 0 and a sphere of dimension d ≥ 1.")
    order = (d - 1) / 2
    above, below = special.ive(order + 1, kappa), special.ive(order, kappa)
    fraction = np.zeros_like(kappa)
    for term in range(_TERMS, 0, -1):
        fraction = kappa / (2 * (order + term) + kappa * fraction)
    usable = above > _UNDERFLOW
    return np.where(usable, above / np.where(usable, below, 1), fraction)


def predict(task: Task, prompts: Prompts) -> Float[Tensor, "prompt n"]:
    """Return the posterior mean E[X | x̃] of every prompt: Propositions 2 (subspaces), 3 (spheres) and 4 (mixtures).

    For mixtures σ_0² > 0 is kept (Eq. 7). A prompt that was transformed is transformed back first. Raises
    `ValueError` for prompts that were not drawn from this kind of task.
    """
    query = prompts.clean_query
    if isinstance(task, GaussianMixtures):
        centers = _needs(prompts.centers, task)
        weights = centers.new_full((task.n_components,), 1 / task.n_components)
        variances = centers.new_full((task.n_components,), task.component_variance)
        return predict_mixture(query, centers, weights, variances, task.noise_variance)
    bases = _needs(prompts.bases, task)
    inside = (query[:, None] @ bases @ bases.mT)[:, 0]
    if isinstance(task, LinearSubspaces):
        return inside * (task.signal_variance / (task.signal_variance + task.noise_variance))
    if isinstance(task, Spheres):
        length = inside.norm(dim=-1, keepdim=True)
        kappa = (task.radius * length / task.noise_variance).cpu().double().numpy()
        mean_length = torch.from_numpy(bessel_ratio(kappa, task.d)).to(inside)
        return torch.where(length > 0, task.radius * mean_length * inside / length, 0.0)
    raise ValueError(f"{type(task).__name__}: no Bayes predictor is known for this task.")


def predict_mixture(
    query: Float[Tensor, "prompt n"],
    centers: Float[Tensor, "prompt component n"],
    weights: Float[Tensor, " component"],
    variances: Float[Tensor, " component"],
    noise_variance: float | int,
) -> Float[Tensor, "prompt n"]:
    """Return the posterior mean of any isotropic Gaussian mixture, Σ_a r_a m_a (*in-context-denoising* C.3).

    m_a = (σ_a² x̃ + σ_Z² μ_a) ÷ (σ_a² + σ_Z²), and r_a ∝ w_a (σ_Z² + σ_a²)^(−n/2) exp(−‖x̃ − μ_a‖² ÷ 2(σ_Z² + σ_a²)).
    The paper prints ((σ_Z² + σ_a²)/σ_a²)^(n/2) for the factor before the exponential; quadrature agrees with the one
    here, and where all variances are alike (Proposition 4) it cancels. σ_a = 0 is allowed.

    Raises `ValueError` for weights that are negative or sum to 0, and negative variances.
    """
    if bool((weights < 0).any()) or not float(weights.sum()) > 0 or bool((variances < 0).any()):
        raise ValueError("expected weights of at least 0 that do not sum to 0, and variances of at least 0.")
    total = variances + noise_variance
    distances = (query[:, None] - centers).pow(2).sum(-1)
    log_weights = weights.log() - 0.5 * query.shape[-1] * total.log() - distances / (2 * total)
    means = (variances[:, None] * query[:, None] + noise_variance * centers) / total[:, None]
    return (log_weights.softmax(-1)[..., None] * means).sum(1)


def bayes_loss(task: Task, *, n_prompts: int = 200_000, seed: int = 0) -> ExpectedLoss:
    """Return E‖X − E[X | x̃]‖², the least that any predictor loses, per prompt.

    Subspaces: d σ_0² σ_Z² ÷ (σ_0² + σ_Z²), in closed form (Eq. 4). Spheres: R² (1 − E A(κ)²), where κ² σ_Z² ÷ R² is
    noncentral χ² of d + 1 degrees and noncentrality R²/σ_Z², by quadrature. Mixtures: the mean over `n_prompts`
    simulated queries of the posterior variance, whose spread over prompts is smaller than the error's.
    """
    require_whole("n_prompts", n_prompts, 1)
    if isinstance(task, LinearSubspaces):
        variance = task.signal_variance * task.noise_variance / (task.signal_variance + task.noise_variance)
        return ExpectedLoss(value=task.d * variance, standard_error=0.0, method="closed form")
    if isinstance(task, Spheres):
        return ExpectedLoss(value=_sphere_loss(task), standard_error=0.0, method="quadrature")
    if isinstance(task, GaussianMixtures):
        generator = torch.Generator().manual_seed(require_seed(seed))
        variances = torch.cat([_posterior_variance(task, size, generator) for size in _chunks(n_prompts, 20_000)])
        error = float(variances.std() / math.sqrt(len(variances)))
        return ExpectedLoss(value=float(variances.mean()), standard_error=error, method="simulation")
    raise ValueError(f"{type(task).__name__}: no Bayes loss is known for this task.")


def _sphere_loss(task: Spheres) -> float:
    # By symmetry x = (R, 0, …, 0); ‖x̃_∥‖² ÷ σ_Z² is noncentral χ² with d + 1 degrees of freedom.
    law = stats.ncx2(task.width, task.radius**2 / task.noise_variance)

    def integrand(square: float) -> float:
        kappa = task.radius * math.sqrt(square / task.noise_variance)
        return float(bessel_ratio(kappa, task.d)) ** 2 * float(law.pdf(square))

    low, high = (float(law.ppf(q)) for q in (1e-16, 1 - 1e-15))
    if not math.isfinite(high):
        high = float(law.mean() + 40 * law.std())
    mean_square, _ = integrate.quad(integrand, low, high, epsabs=1e-12, epsrel=1e-12, limit=400)
    return task.radius**2 * (1 - mean_square)


def _posterior_variance(task: GaussianMixtures, n_prompts: int, generator: torch.Generator) -> Tensor:
    """tr Cov(X | x̃) of simulated queries, float64 `[prompt]`."""
    tokens, drawn_from = task.draw(n_prompts, 1, generator)
    centers = drawn_from["centers"]
    noise = torch.randn(n_prompts, task.n, dtype=torch.float64, generator=generator)
    query = tokens[:, 0] + math.sqrt(task.noise_variance) * noise
    total = task.component_variance + task.noise_variance
    responsibility = (-(query[:, None] - centers).pow(2).sum(-1) / (2 * total)).softmax(-1)
    mean = (responsibility[..., None] * centers).sum(1, keepdim=True)
    spread = (responsibility * (centers - mean).pow(2).sum(-1)).sum(-1)
    within = task.n * task.component_variance * task.noise_variance / total
    return within + (task.noise_variance / total) ** 2 * spread


def _chunks(total: int, size: int) -> list[int]:
    return [min(size, total - start) for start in range(0, total, size)]


def _needs(latent: Tensor | None, task: Task) -> Tensor:
    if latent is None:
        raise ValueError(f"these prompts were not drawn from {type(task).__name__}.")
    return latent


def project(prompts: Prompts) -> Float[Tensor, "prompt n"]:
    """Return P x̃: the query's part in the subspace of its prompt. Raises `ValueError` for mixtures, whose tokens span
    everything."""
    if prompts.bases is None:
        raise ValueError("a projection needs prompts of subspaces or spheres; a mixture's tokens span everything.")
    return (prompts.clean_query[:, None] @ prompts.bases @ prompts.bases.mT)[:, 0]


def best_linear(task: Task, prompts: Prompts) -> Float[Tensor, "prompt n"]:
    """Return M (M + σ_Z² I)⁻¹ x̃, with M = E[X Xᵀ] of the prompt's distribution: the best linear map of the query.

    On subspaces and spheres this is the shrunk projection of Figure 2, which for subspaces is Bayes-optimal.
    """
    if prompts.bases is not None:
        variance = task.mean_square / task.width
        return project(prompts) * (variance / (variance + task.noise_variance))
    if not isinstance(task, GaussianMixtures) or prompts.centers is None:
        raise ValueError(f"these prompts were not drawn from {type(task).__name__}.")
    identity = torch.eye(task.n, dtype=prompts.query.dtype, device=prompts.query.device)
    moment = prompts.centers.mT @ prompts.centers / task.n_components + task.component_variance * identity
    factor = torch.linalg.cholesky(moment + task.noise_variance * identity)
    return (moment @ torch.cholesky_solve(prompts.clean_query[..., None], factor))[..., 0]


#: Estimators that know the prompt's distribution and need no training (Figure 2): name to function of task and prompts.
BASELINES: dict[str, Callable[[Task, Prompts], Tensor]] = {
    "zero": lambda task, prompts: torch.zeros_like(prompts.query),
    "projection": lambda task, prompts: project(prompts),
    "best linear": best_linear,
    "Bayes": predict,
}


def squared_errors(prediction: Float[Tensor, "prompt n"], prompts: Prompts) -> Float[Tensor, " prompt"]:
    """Return ‖x̂ − x‖² of each prompt, summed over n."""
    return (prediction - prompts.target).pow(2).sum(-1)
