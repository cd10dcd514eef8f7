"""The three tasks of *in-context-denoising* §2.2: prompts of clean tokens and one noisy query.

A prompt draws a distribution p_X of its own (a subspace, a sphere in a subspace, or the centres of a mixture), then
L context tokens and a target from it; the query is the target plus N(0, σ_Z² I). With an invertible `transform` A
(Appendix H) context and query are mapped by A and the target is left as it is.

Tokens are rows here, so that A acts as x Aᵀ; `n` is the paper's ambient dimension, L its context length *without* the
query (its figures' "L = 500" counts the query, so they have 499).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_seed
from aotlens.results import Result


@dataclass(frozen=True, kw_only=True)
class Prompts(Result):
    """Prompts of one task, and what each was drawn from (which a Bayes predictor knows and a layer does not)."""

    context: Float[Tensor, "prompt context n"]
    query: Float[Tensor, "prompt n"]
    target: Float[Tensor, "prompt n"]
    bases: Float[Tensor, "prompt n width"] | None = None
    """An orthonormal basis of the subspace that holds the tokens (subspaces and spheres)."""
    centers: Float[Tensor, "prompt component n"] | None = None
    """The mixture's centres."""
    transform: Float[Tensor, "n n"] | None = None
    """A of Appendix H, where context and query were transformed."""

    @property
    def clean_query(self) -> Float[Tensor, "prompt n"]:
        """The query before the transform A: x̃ itself."""
        if self.transform is None:
            return self.query
        return torch.linalg.solve(self.transform, self.query.mT).mT

    def __len__(self) -> int:
        return len(self.context)


@dataclass(frozen=True, kw_only=True)
class Task:
    """The common part of the three tasks: the ambient dimension, the noise, and the drawing of prompts.

    Raises `ValueError` for sizes below 1 and for variances and radii that are not positive and finite.
    """

    n: int = 16
    """Ambient dimension."""
    noise_variance: float | int
    """σ_Z², of each coordinate of the query's noise."""

    def __post_init__(self) -> None:
        for field, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise ValueError(f"{type(self).__name__}: {field}={value!r}: expected a positive finite number.")
        if self.width > self.n:
            raise ValueError(
                f"{type(self).__name__}: its tokens need {self.width} dimensions, and n={self.n} has fewer."
            )

    @property
    def width(self) -> int:
        """The dimension of the subspace that a prompt's tokens span."""
        raise NotImplementedError

    @property
    def mean_square(self) -> float:
        """E‖X‖² of a clean token: the loss of the zero predictor, per prompt (summed over n)."""
        raise NotImplementedError

    def linear_moments(self, n_context: int) -> tuple[float, float]:
        """Return E tr(S M) and E tr(S² (M + σ_Z² I)), in closed form, for linear attention on `n_context` tokens.

        S = (1/L) Σ X_t X_tᵀ is the context's second moment and M = E[X Xᵀ] that of the prompt's distribution; the
        expectation is over both. Scaled identities of product c lose E‖c S x̃ − x‖² = E tr M − 2c E tr(S M) +
        c² E tr(S² (M + σ_Z² I)).
        """
        raise NotImplementedError

    def draw(self, n_prompts: int, n_tokens: int, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Return clean tokens `[prompt, token, n]`, float64, and the fields of `Prompts` that say what they were drawn
        from."""
        raise NotImplementedError

    def sample(
        self,
        n_prompts: int,
        n_context: int,
        seed: int = 0,
        *,
        transform: Float[Tensor, "n n"] | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> Prompts:
        """Draw prompts of `n_context` clean tokens, a noisy query, and the clean target.

        `transform` is A of Appendix H: context and query become A X_t and A x̃, the target stays x. Drawn in float64
        and rounded to `dtype`. Raises `ValueError` for no prompts or tokens and a transform that is not an invertible
        n × n.
        """
        if n_prompts < 1 or n_context < 1:
            raise ValueError(f"expected at least 1 prompt and 1 context token, got {n_prompts} and {n_context}.")
        generator = torch.Generator().manual_seed(require_seed(seed))
        tokens, drawn_from = self.draw(n_prompts, n_context + 1, generator)
        noise = torch.randn(n_prompts, self.n, dtype=torch.float64, generator=generator)
        context, target = tokens[:, :-1], tokens[:, -1]
        query = target + math.sqrt(self.noise_variance) * noise
        if transform is not None:
            transform = transform.double()
            if transform.shape != (self.n, self.n) or not torch.linalg.cond(transform) < 1e12:
                raise ValueError(f"transform: expected an invertible matrix [{self.n}, {self.n}].")
            context, query = context @ transform.T, query @ transform.T
        return Prompts(
            context=context.to(dtype),
            query=query.to(dtype),
            target=target.to(dtype),
            transform=None if transform is None else transform.to(dtype),
            **{name: tensor.to(dtype) for name, tensor in drawn_from.items()},
        )


@dataclass(frozen=True, kw_only=True)
class LinearSubspaces(Task):
    """Case 1: tokens N(0, σ_0² P), P the projection onto a random d-dimensional subspace (§2.2.1)."""

    d: int = 8
    """Dimension of the subspace."""
    signal_variance: float | int = 2.0
    """σ_0², the variance of tokens within the subspace, a direction."""
    noise_variance: float | int = 1.0

    @property
    def width(self) -> int:
        return self.d

    @property
    def mean_square(self) -> float:
        return self.d * self.signal_variance

    def linear_moments(self, n_context: int) -> tuple[float, float]:
        # S = σ_0² W with W a Wishart matrix over L in d dimensions: E W² = (1 + (d + 1)/L) P.
        signal = self.d * self.signal_variance**2
        spread = 1 + (self.d + 1) / n_context
        return signal, signal * spread * (self.signal_variance + self.noise_variance)

    def draw(self, n_prompts: int, n_tokens: int, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        bases = random_bases(n_prompts, self.n, self.d, generator)
        coordinates = torch.randn(n_prompts, n_tokens, self.d, dtype=torch.float64, generator=generator)
        return math.sqrt(self.signal_variance) * coordinates @ bases.mT, {"bases": bases}


@dataclass(frozen=True, kw_only=True)
class Spheres(Task):
    """Case 2: tokens uniform on the d-sphere of radius R in a random (d + 1)-dimensional subspace (§2.2.2)."""

    d: int = 8
    """Dimension of the sphere, which lies in d + 1 dimensions."""
    radius: float | int = 1.0
    noise_variance: float | int = 0.1

    @property
    def width(self) -> int:
        return self.d + 1

    @property
    def mean_square(self) -> float:
        return self.radius**2

    def linear_moments(self, n_context: int) -> tuple[float, float]:
        # M = (R²/D) P, and E S² = (1/L) E[‖X‖² X Xᵀ] + (1 − 1/L) M² = R² (1/L + (1 − 1/L)/D) M.
        variance = self.radius**2 / self.width
        spread = 1 / n_context + (1 - 1 / n_context) / self.width
        return self.radius**2 * variance, self.radius**4 * spread * (variance + self.noise_variance)

    def draw(self, n_prompts: int, n_tokens: int, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        bases = random_bases(n_prompts, self.n, self.width, generator)
        points = torch.randn(n_prompts, n_tokens, self.width, dtype=torch.float64, generator=generator)
        points = self.radius * points / points.norm(dim=-1, keepdim=True)
        return points @ bases.mT, {"bases": bases}


@dataclass(frozen=True, kw_only=True)
class GaussianMixtures(Task):
    """Case 3: tokens of a balanced mixture of isotropic Gaussians, centres uniform on a sphere of radius R (§2.2.3)."""

    n_components: int = 8
    """p, the number of Gaussians."""
    radius: float | int = 1.0
    """R = ‖μ_a‖, of every centre."""
    component_variance: float | int = 0.02
    """σ_0², of each coordinate within a component."""
    noise_variance: float | int = 0.1

    @property
    def width(self) -> int:
        return self.n

    @property
    def mean_square(self) -> float:
        return self.radius**2 + self.n * self.component_variance

    def linear_moments(self, n_context: int) -> tuple[float, float]:
        # M = C + s I with C = Σ μ_a μ_aᵀ / p; two centres are unrelated directions: E⟨u_a, u_b⟩² = 1/n, and
        # E⟨u_a, u_b⟩⟨u_b, u_c⟩⟨u_c, u_a⟩ = 1/n² for three.
        n, p, s, square = self.n, self.n_components, self.component_variance, self.radius**2
        c1 = square
        c2 = square**2 * (1 + (p - 1) / n) / p
        c3 = square**3 * (1 + 3 * (p - 1) / n + (p - 1) * (p - 2) / n**2) / p**2
        m2 = c2 + 2 * s * c1 + n * s**2
        m3 = c3 + 3 * s * c2 + 3 * s**2 * c1 + n * s**3
        # E[‖X‖² X Xᵀ] = (R² + (n + 4)s) C + (R² s + (n + 2)s²) I
        on_centers, on_all = square + (n + 4) * s, square * s + (n + 2) * s**2
        variance = self.noise_variance
        fourth = on_centers * (c2 + (s + variance) * c1) + on_all * (c1 + n * (s + variance))
        power = fourth / n_context + (1 - 1 / n_context) * (m3 + variance * m2)
        return m2, power

    def draw(self, n_prompts: int, n_tokens: int, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        centers = torch.randn(n_prompts, self.n_components, self.n, dtype=torch.float64, generator=generator)
        centers = self.radius * centers / centers.norm(dim=-1, keepdim=True)
        component = torch.randint(self.n_components, (n_prompts, n_tokens), generator=generator)
        spread = torch.randn(n_prompts, n_tokens, self.n, dtype=torch.float64, generator=generator)
        means = centers.gather(1, component[..., None].expand(-1, -1, self.n))
        return means + math.sqrt(self.component_variance) * spread, {"centers": centers}


#: The tasks at the paper's parameters (Figure 3), by name.
TASKS: dict[str, Task] = {
    "subspaces": LinearSubspaces(),
    "spheres": Spheres(),
    "mixtures": GaussianMixtures(),
}


def random_bases(n_prompts: int, n: int, width: int, generator: torch.Generator) -> Float[Tensor, "prompt n width"]:
    """Return orthonormal bases of independent uniformly (Haar) distributed subspaces, float64."""
    return torch.linalg.qr(torch.randn(n_prompts, n, width, dtype=torch.float64, generator=generator)).Q
