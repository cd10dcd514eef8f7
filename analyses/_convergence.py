"""The rate at which a layer nears its limit: small weights (Proposition 3.2) and long contexts (Propositions 5 and 6).

Proposition 5 bounds ‖Π̂x̃ − x̃‖_∞, Π̂ = (1/(σ_0² L)) Σ X_t X_tᵀ in d dimensions, by C ‖x̃‖ max{√r, r}, r = (d + ln(2/δ))/L,
with probability 1 − δ, and names no C: `fit_proposition_5` reports the smallest that held. Proposition 6 bounds the two
sums of softmax attention with the ideal weights on tokens of norm R; its sinh(R‖x̃‖/σ_Z²) is some 4·10⁶ at the paper's
sizes, so that it says nothing there: `check_proposition_6` takes R‖x̃‖/σ_Z² as an argument.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy import special
from torch import Tensor

from aotlens.conventions import require_seed
from aotlens.denoise.bayes import bessel_ratio
from aotlens.denoise.one_layer import attend, second_moment
from aotlens.denoise.tasks import Prompts
from aotlens.results import Result


def small_weight_error(
    prompts: Prompts, W_QK: Float[Tensor, "n n"], W_OV: Float[Tensor, "n n"], epsilons: Sequence[float]
) -> Float[Tensor, " epsilon"]:
    """Return the largest error of Proposition 3.2 over prompts, for every ε: it falls as ε.

    Softmax attention with ε W_QK and W_OV / ε is x̄ W_OV / ε + x̃ W_QK S W_OV + O(ε), x̄ the context's mean and S its
    covariance.
    """
    context, query = prompts.context, prompts.query
    mean = context.mean(1)
    covariance = second_moment(context) - mean[:, :, None] * mean[:, None]
    limit = (query[:, None] @ W_QK @ covariance @ W_OV)[:, 0]
    errors = []
    for epsilon in epsilons:
        softmax = attend(context, query, epsilon * W_QK, W_OV / epsilon, "softmax")
        errors.append((softmax - mean @ W_OV / epsilon - limit).abs().max())
    return torch.stack(errors)


@dataclass(frozen=True, kw_only=True)
class FittedConstant(Result):
    """Proposition 5's C, fitted: the (1 − δ)-quantile of the error ÷ (‖x̃‖ max{√r, r}) at each size."""

    dimensions: tuple[int, ...]
    n_contexts: tuple[int, ...]
    delta: float
    n_prompts: int
    constants: Float[Tensor, "dimension context"]


def fit_proposition_5(
    dimensions: Sequence[int], n_contexts: Sequence[int], *, delta: float = 0.05, n_prompts: int = 1000, seed: int = 0
) -> FittedConstant:
    """Draw Gaussian contexts of every size and fit C for a query of length 1 (σ_0 cancels, and so does ‖x̃‖).

    Time: O(prompts · Σ L · Σ d).
    """
    generator = torch.Generator().manual_seed(require_seed(seed))
    constants = torch.zeros(len(dimensions), len(n_contexts), dtype=torch.float64)
    for i, d in enumerate(dimensions):
        query = torch.randn(n_prompts, d, 1, dtype=torch.float64, generator=generator)
        query /= query.norm(dim=1, keepdim=True)
        for j, length in enumerate(n_contexts):
            context = torch.randn(n_prompts, length, d, dtype=torch.float64, generator=generator)
            error = (context.mT @ (context @ query) / length - query).abs().amax((1, 2))
            rate = (d + math.log(2 / delta)) / length
            constants[i, j] = torch.quantile(error, 1 - delta) / max(math.sqrt(rate), rate)
    return FittedConstant(
        dimensions=tuple(dimensions),
        n_contexts=tuple(n_contexts),
        delta=delta,
        n_prompts=n_prompts,
        constants=constants,
    )


@dataclass(frozen=True, kw_only=True)
class HoeffdingCheck(Result):
    """Proposition 6 on spheres: how often its two bounds held, and how large they are beside the errors."""

    kappas: tuple[float, ...]
    """R‖x̃‖ / σ_Z²."""
    delta: float
    """The bounds should hold in at least 1 − δ of the prompts."""
    held_sum: Float[Tensor, " kappa"]
    """Share of prompts in which |(1/L) Σ e^⟨X_t, x̃⟩/σ² − E| is below its bound."""
    held_vector: Float[Tensor, " kappa"]
    """The same of the vector's largest coordinate."""
    slack_sum: Float[Tensor, " kappa"]
    """The bound ÷ the (1 − δ)-quantile of the error: 1 would be sharp."""
    slack_vector: Float[Tensor, " kappa"]


def check_proposition_6(
    kappas: Sequence[float],
    *,
    d: int = 8,
    n_context: int = 499,
    delta: float = 0.05,
    n_prompts: int = 1000,
    seed: int = 0,
) -> HoeffdingCheck:
    """Draw contexts on the unit sphere in `d` dimensions and compare both sums with their expectations and bounds.

    With κ = R‖x̃‖/σ_Z² and R = 1, E e^{κ cos θ} = Γ(d/2) (2/κ)^{d/2−1} I_{d/2−1}(κ), and E X e^{κ cos θ} is that times
    the mean cosine, along the query. The coordinates of the second bound are those of a random basis.
    """
    generator = torch.Generator().manual_seed(require_seed(seed))
    context = torch.randn(n_prompts, n_context, d, dtype=torch.float64, generator=generator)
    context /= context.norm(dim=-1, keepdim=True)
    direction = torch.randn(n_prompts, d, 1, dtype=torch.float64, generator=generator)
    direction /= direction.norm(dim=1, keepdim=True)
    cosines = (context @ direction)[..., 0]
    spread = math.sqrt(2 * math.log(2 / delta) / n_context), math.sqrt(2 * math.log(2 * d / delta) / n_context)
    columns: list[list[float]] = [[], [], [], []]
    for kappa in kappas:
        weights = (kappa * cosines).exp()
        order = d / 2 - 1
        expected = float(special.gamma(d / 2) * (2 / kappa) ** order * special.iv(order, kappa))
        along = expected * float(np.asarray(bessel_ratio(kappa, d - 1)))
        errors = (weights.mean(1) - expected).abs()
        vector = (weights[:, None] @ context)[:, 0] / n_context - along * direction[..., 0]
        bounds = math.sinh(kappa) * spread[0], math.exp(kappa) * spread[1]
        for place, (error, bound) in enumerate(zip((errors, vector.abs().amax(1)), bounds, strict=True)):
            columns[place].append(float((error < bound).double().mean()))
            columns[place + 2].append(bound / float(torch.quantile(error, 1 - delta)))
    held_sum, held_vector, slack_sum, slack_vector = (torch.tensor(column, dtype=torch.float64) for column in columns)
    return HoeffdingCheck(
        kappas=tuple(kappas),
        delta=delta,
        held_sum=held_sum,
        held_vector=held_vector,
        slack_sum=slack_sum,
        slack_vector=slack_vector,
    )
