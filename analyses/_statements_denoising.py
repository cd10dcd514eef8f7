"""Statements of *in-context-denoising* and of *aot*, run on random inputs."""

from __future__ import annotations

import math

import torch

from analyses._claims import Claim, zero
from analyses._statements_structures import SEED
from aotlens.denoise import (
    TASKS,
    GaussianMixtures,
    LinearSubspaces,
    Spheres,
    Task,
    asymmetry,
    attend,
    bayes_loss,
    layer_jacobian,
    memory_step,
    predict,
    predict_mixture,
    sample_mixture,
    squared_errors,
)
from aotlens.models import AttentionOnlyTransformer, ModelConfig, presets

_FLOAT64 = {"dtype": torch.float64}


def of_in_context_denoising(*, quick: bool) -> list[Claim]:
    """Check Propositions 1 to 4, C.3, Theorem 3.1, Lemma F.1, Eqs. 12, 14 and 17, and A.18 and A.19."""
    claims = []
    n_prompts = 4_000 if quick else 40_000
    for name, task in TASKS.items():
        prompts, loss = task.sample(n_prompts, 1, seed=SEED), bayes_loss(task, n_prompts=n_prompts)
        errors = squared_errors(predict(task, prompts), prompts)
        deviation = float(errors.std()) / len(errors) ** 0.5 + loss.standard_error
        claims.append(
            Claim(
                claim=f"Proposition 1, {name}: the posterior mean loses E Tr Cov(X | X̃) (four standard errors)",
                expected=loss.value, measured=float(errors.mean()), tolerance=4 * deviation, seed=SEED,
            )
        )  # fmt: skip
    for number, task in (
        (2, LinearSubspaces(n=2, d=1)),
        (3, Spheres(n=2, d=1, noise_variance=0.3)),
        (4, GaussianMixtures(n=2, n_components=3, component_variance=0.2, noise_variance=0.3)),
    ):
        claims.append(zero(f"Proposition {number}: the predictor less the posterior mean on a grid", _off(task), 1e-6))
    claims += [*_c3(), *_theorem_3_1(quick=quick), *_expansions(), *_symmetry()]
    return claims


def _off(task: Task) -> float:
    """Find the largest error of `predict` beside sums over a fine grid of clean tokens, on 20 prompts in the plane."""
    prompts = task.sample(20, 1, seed=SEED)
    circle = torch.linspace(0, 2 * math.pi, 4001, **_FLOAT64)[:-1]
    line = torch.linspace(-12, 12, 24_001, **_FLOAT64)
    square = torch.linspace(-4, 4, 801, **_FLOAT64)
    largest = 0.0
    for index, query in enumerate(prompts.query):
        if isinstance(task, Spheres):
            tokens = task.radius * torch.stack([circle.cos(), circle.sin()], 1)
            log_prior = torch.zeros(len(tokens), **_FLOAT64)
        elif isinstance(task, LinearSubspaces):
            assert prompts.bases is not None
            tokens = line[:, None] * prompts.bases[index, :, 0]
            log_prior = -(line**2) / (2 * task.signal_variance)
        else:
            assert isinstance(task, GaussianMixtures) and prompts.centers is not None
            tokens = torch.cartesian_prod(square, square)
            distances = (tokens[:, None] - prompts.centers[index]).pow(2).sum(-1)
            log_prior = (-distances / (2 * task.component_variance)).logsumexp(1)
        weights = (log_prior - (tokens - query).pow(2).sum(1) / (2 * task.noise_variance)).softmax(0)
        largest = max(largest, float((weights @ tokens - predict(task, prompts)[index]).abs().max()))
    return largest


def _c3() -> list[Claim]:
    """Check C.3 with unlike variances, in one dimension: sums on a grid beside both factors."""
    centers, variances, weights, noise = (
        torch.tensor(values, **_FLOAT64) for values in ([-1.0, 1.5], [0.05, 0.8], [0.3, 0.7], 0.5)
    )
    queries = torch.tensor([-1.2, 0.1, 2.0], **_FLOAT64)
    grid = torch.linspace(-12, 12, 48_001, **_FLOAT64)
    parts = weights * variances.rsqrt() * (-((grid[:, None] - centers) ** 2) / (2 * variances)).exp()
    density = parts.sum(1) * (-((grid - queries[:, None]) ** 2) / (2 * noise)).exp()
    exact = (density @ grid) / density.sum(1)
    ours = predict_mixture(queries[:, None], centers.expand(3, 2)[..., None], weights, variances, float(noise))[:, 0]
    total = variances + noise
    factor = weights * (total / variances).sqrt() * (-((queries[:, None] - centers) ** 2) / (2 * total)).exp()
    means = (variances * queries[:, None] + noise * centers) / total
    printed = (factor * means).sum(1) / factor.sum(1)
    return [
        zero("C.3 as printed, factor ((σ_Z² + σ_a²)/σ_a²)^(n/2): off the posterior mean by", (printed - exact).abs()
             .max(), 1e-6, None),
        zero("C.3 (corrected), factor (σ_Z² + σ_a²)^(−n/2): off by", (ours - exact).abs().max(), 1e-6, None),
    ]  # fmt: skip


def _theorem_3_1(*, quick: bool) -> list[Claim]:
    """Check that softmax attention with α = 1, β = 1/σ_Z² nears Bayes on spheres as the context grows."""
    task = Spheres(n=4, d=2, noise_variance=0.3)
    lengths = (100, 10_000)
    off = []
    for length in lengths:
        prompts = task.sample(50 if quick else 200, length, seed=SEED)
        identity = torch.eye(4, **_FLOAT64)
        estimate = attend(prompts.context, prompts.query, identity / task.noise_variance, identity, "softmax")
        off.append(float((estimate - predict(task, prompts)).pow(2).sum(-1).mean().sqrt()))
    return [
        Claim(
            claim="Theorem 3.1: softmax attention's distance to Bayes at L = 100 ÷ at 10,000 (as 1/√L: 10)",
            expected=10, measured=off[0] / off[1], tolerance=2, seed=SEED,
        )
    ]  # fmt: skip


def _expansions() -> list[Claim]:
    """Check Lemma F.1, Eq. 14 where tokens have one length, and Eq. 17 beside the gradient of Eq. 16 by autograd."""
    generator = torch.Generator().manual_seed(SEED)
    v = torch.randn(30, generator=generator, **_FLOAT64)
    rest = []
    for beta in (1e-3, 1e-4):
        rest.append(float(((beta * v).softmax(0) - (1 + beta * (v - v.mean())) / len(v)).abs().max()))
    prompts = Spheres(n=4, d=2).sample(10, 50, seed=SEED)
    identity = torch.eye(4, **_FLOAT64)
    softmax, gaussian = (attend(prompts.context, prompts.query, identity, identity, kind) for kind in
                         ("softmax", "gaussian"))  # fmt: skip
    alpha, beta, gamma = 0.8, 3.0, 0.5
    state = prompts.query.clone().requires_grad_()
    scores = beta * (prompts.context @ state[..., None])[..., 0]
    energy = state.pow(2).sum(-1) / (2 * alpha) - scores.logsumexp(-1) / beta
    (gradient,) = torch.autograd.grad(energy.sum(), state)
    step = memory_step(prompts.query, prompts.context, alpha, beta, step_size=gamma)
    return [
        Claim(
            claim="Lemma F.1: what the expansion leaves falls as β² (ratio at 10⁻³ and 10⁻⁴)",
            expected=100, measured=rest[0] / rest[1], tolerance=1, seed=SEED,
        ),
        zero("Eq. 14 is Eq. 12 where context tokens have one length", (softmax - gaussian).abs().max(), 1e-12),
        zero("Eq. 17 is a step down Eq. 16, by autograd", (state - gamma * gradient - step).detach().abs().max(),
             1e-12),
    ]  # fmt: skip


def _symmetry() -> list[Claim]:
    """A.18 by autograd; A.19 as printed and corrected, for W_PV = W_KQᵀ."""
    generator = torch.Generator().manual_seed(SEED)
    context, state = (torch.randn(*shape, generator=generator, **_FLOAT64) for shape in ((12, 5), (5,)))
    W_QK = torch.randn(5, 5, generator=generator, **_FLOAT64)
    W_OV = W_QK.T.contiguous()

    def layer(s: torch.Tensor) -> torch.Tensor:
        return (context @ (s @ W_QK)).softmax(-1) @ context @ W_OV

    jacobian = layer_jacobian(state, context, W_QK, W_OV)
    by_autograd = torch.autograd.functional.jacobian(layer, state).T
    W_KQ, W_PV = W_QK.T, W_OV.T
    pattern = (context @ (state @ W_QK)).softmax(-1)
    Y = context.T @ (pattern.diag() - torch.outer(pattern, pattern)) @ context
    printed = W_PV @ Y @ W_KQ.T - W_KQ @ Y @ W_PV.T
    return [
        zero("A.18: the layer's Jacobian, by autograd", (jacobian - by_autograd).abs().max(), 1e-12),
        zero("A.19 (corrected): W_PV = W_KQᵀ makes the Jacobian symmetric, ‖J − Jᵀ‖ ÷ ‖J + Jᵀ‖",
             float(asymmetry(jacobian)), 1e-12),
        zero("A.19 as printed, of the same weights: its two sides differ by (÷ their norm)",
             float(printed.norm() / (W_PV @ Y @ W_KQ.T).norm()), 1e-12),
    ]  # fmt: skip


#: Parameters that the paper prints, and half of the last digit that it prints.
PRINTED = {
    "Table 1": {"aot-mssa-v": (22e6, 0.5e6)},
    "Table 2": {"aot-mhsa-v": (15e6, 0.5e6), "vit-s": (22e6, 0.5e6)},
    "Table 4": {
        "aot-mssa-l-base": (102e6, 0.5e6), "aot-mssa-l-medium": (182e6, 0.5e6), "aot-mhsa-l-base": (122e6, 0.5e6),
        "gpt2-base": (124e6, 0.5e6),
    },
    "Table 5": {"icl-aot-mssa-l": (7.5e6, 0.05e6), "icl-aot-mhsa-l": (8.55e6, 5e3), "icl-transformer": (9.63e6, 5e3)},
}  # fmt: skip


def of_aot(*, quick: bool) -> list[Claim]:
    """Check the models' sizes, Eqs. 2 and 4, and the events of Lemmas B.1 and B.2 where the latter's sizes are met."""
    claims = [
        Claim(
            claim=f"{table}: parameters of {name}", expected=int(printed), measured=presets.count_parameters(name),
            tolerance=tolerance,
        )
        for table, of_table in PRINTED.items()
        for name, (printed, tolerance) in of_table.items()
    ]  # fmt: skip
    mixture = sample_mixture(3, 4, 10, 12, noise=0.2, seed=SEED)
    U, Z, own = mixture.bases[0], mixture.tokens.T, mixture.labels == 0
    projected = U @ (U.T @ Z)
    other = sample_mixture(3, 4, 10, 12, noise=0.4, seed=SEED).tokens.T
    inside, outside = (
        float((projected[:, which] - factor * (U @ (U.T @ other))[:, which]).abs().max())
        for which, factor in ((own, 1.0), (~own, 0.5))
    )
    claims += [
        zero("Eq. 2: U_kU_kᵀZ is signal in cluster k (noise twice as large leaves it alone)", inside, 1e-12),
        zero("Eq. 2: U_kU_kᵀZ is noise elsewhere (it doubles with δ)", outside, 1e-12),
        zero("Eq. 4 is Eq. 5 with equal query, key and value matrices: logits", _mssa_as_mhsa(), 1e-12),
        *_concentration(n=20_000 if quick else 200_000),
    ]
    return claims


@torch.no_grad()
def _mssa_as_mhsa() -> float:
    """An MSSA with a tied output, and an MHSA that is given its matrices."""
    shape = {"n_layers": 2, "d_model": 12, "n_heads": 3, "d_head": 4, "n_ctx": 6, "d_vocab": 9, "seed": SEED}
    mssa = AttentionOnlyTransformer(ModelConfig(attention="mssa", tied_output=True, **shape)).double()
    mhsa = AttentionOnlyTransformer(ModelConfig(**shape)).double()
    ours = dict(mssa.named_parameters())
    for name, parameter in mhsa.named_parameters():
        if name in ours and ours[name].shape == parameter.shape:
            parameter.copy_(ours[name])
    for layer, block in enumerate(mhsa.blocks):
        for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"):
            weights = getattr(mssa, name)
            if getattr(block.attn, name, None) is not None:
                getattr(block.attn, name).copy_(0 if weights is None else weights[layer])
    tokens = torch.arange(6)[None]
    return float((mssa(tokens) - mhsa(tokens)).abs().max())


def _concentration(n: int) -> list[Claim]:
    """Check Lemma B.1 at t = 2δ, and Lemma B.2 (i) and (ii) at p = 698, N = 200: how often what they bound happens."""
    generator = torch.Generator().manual_seed(SEED)
    noise, d, t = 0.5, 64, 1.0
    x = noise * torch.randn(n, d, generator=generator)
    outside = float(((x.norm(dim=1) - noise * d**0.5).abs() > t + 2 * noise).float().mean())
    promised = 2 * math.exp(-(t**2) / (2 * noise**2))
    clusters, total, p = 4, 200, 698
    log_total = math.log(total)
    a = torch.randn(clusters, total // clusters, p, generator=generator)
    lengths = a.norm(dim=-1)
    off = float((lengths - p**0.5).abs().max()) / (2 * (log_total**0.5 + 1))
    products = (a @ a.mT).abs() / lengths[..., None]
    products.diagonal(dim1=1, dim2=2).zero_()
    return [
        Claim(
            claim="Lemma B.1: share of norms beyond t + 2δ, promised at most 2 exp(−t²/2δ²) (half of it ± half)",
            expected=promised / 2, measured=outside, tolerance=promised / 2, seed=SEED,
        ),
        Claim(
            claim="Lemma B.2 (i): largest | ‖a_i‖ − √p | ÷ its bound, at p = 698, N = 200",
            expected=0.5, measured=off, tolerance=0.5, seed=SEED,
        ),
        Claim(
            claim="Lemma B.2 (ii): largest |⟨a_i, a_j⟩| ÷ its bound, at the same sizes",
            expected=0.5, measured=float(products.max()) / (3 * log_total**0.5), tolerance=0.5, seed=SEED,
        ),
    ]  # fmt: skip
