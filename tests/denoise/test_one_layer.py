"""One layer against the paper's equations on columns; batched training against one run after another."""

from __future__ import annotations

import math

import pytest
import torch

from aotlens.denoise.one_layer import attend, landscape, optimal_linear_scale
from aotlens.denoise.tasks import GaussianMixtures, LinearSubspaces, Spheres
from aotlens.denoise.training import TrainingSettings, train_layers

N, L = 4, 7


@pytest.fixture
def draw() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(3, L + 1, N, generator=generator, dtype=torch.float64)
    W_PV, W_KQ = torch.randn(2, N, N, generator=generator, dtype=torch.float64)
    return tokens[:, :-1], tokens[:, -1], W_PV, W_KQ


def test_layers_are_the_papers_equations_on_columns(draw) -> None:
    context, query, W_PV, W_KQ = draw
    estimates = {kind: attend(context, query, W_KQ.T, W_PV.T, kind) for kind in ("linear", "softmax", "gaussian")}
    for prompt in range(3):
        X, x = context[prompt].T, query[prompt]  # columns, as the paper has them
        linear = W_PV @ X @ X.T @ W_KQ @ x / L
        softmax = W_PV @ X @ torch.softmax(X.T @ W_KQ @ x, dim=0)
        distances = (X - (W_KQ @ x)[:, None]).pow(2).sum(0)
        gaussian = (W_PV @ X * torch.exp(-distances / 2)).sum(1) / torch.exp(-distances / 2).sum()
        for kind, expected in (("linear", linear), ("softmax", softmax), ("gaussian", gaussian)):
            torch.testing.assert_close(estimates[kind][prompt], expected, rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match="'linear', 'softmax', 'gaussian'"):
        attend(context, query, W_KQ, W_PV, "hardmax")


def test_small_softmax_attention_becomes_linear_attention(draw) -> None:
    """Proposition 3.2: W_PV/ε and εW_KQ give W_PV x̄/ε + linear attention on centred keys + O(ε)."""
    context, query, W_PV, W_KQ = draw
    mean = context.mean(1, keepdim=True)
    covariance = context.mT @ (context - mean) / L
    limit = (query[:, None] @ W_KQ.T @ covariance.mT @ W_PV.T)[:, 0]
    errors = []
    for epsilon in (1e-2, 1e-3, 1e-4):
        softmax = attend(context, query, epsilon * W_KQ.T, W_PV.T / epsilon, "softmax")
        errors.append(float((softmax - (mean @ W_PV.T / epsilon)[:, 0] - limit).abs().max()))
    assert errors[1] < errors[0] / 8 and errors[2] < errors[1] / 8


@pytest.mark.parametrize("kind", ["linear", "softmax"])
def test_the_landscape_is_the_loss_at_every_point(kind) -> None:
    prompts = GaussianMixtures(n=4, n_components=3).sample(50, 20, seed=1)
    alphas, betas = torch.linspace(-1, 2, 7).double(), torch.tensor([-3.0, 0.0, 0.5, 4.0]).double()
    surface = landscape(prompts, alphas, betas, kind)
    identity = torch.eye(4, dtype=torch.float64)
    for i, alpha in enumerate(alphas):
        for j, beta in enumerate(betas):
            estimate = attend(prompts.context, prompts.query, beta * identity, alpha * identity, kind)
            loss = (estimate - prompts.target).pow(2).sum(-1).mean()
            assert float(surface.loss[i, j]) == pytest.approx(float(loss))
    minimum = surface.minimum
    assert minimum.loss <= float(surface.loss.min()) + 1e-12
    estimate = attend(prompts.context, prompts.query, minimum.beta * identity, minimum.alpha * identity, kind)
    assert float((estimate - prompts.target).pow(2).sum(-1).mean()) == pytest.approx(minimum.loss)


def test_the_scan_finds_the_closed_form_of_linear_attention() -> None:
    task = Spheres(n=6, d=3)
    prompts = task.sample(8_000, 12, seed=2)
    betas = torch.linspace(0.5, 6, 56).double()
    scan = landscape(prompts, torch.ones(1).double(), betas, "linear")
    scale = optimal_linear_scale(task, 12)
    assert float(betas[scan.loss[0].argmin()]) == pytest.approx(scale.beta, rel=0.1)
    assert float(scan.loss.min()) == pytest.approx(scale.loss, rel=0.03)


SMALL = TrainingSettings(n_prompts=40, batch_size=20, n_context=30, n_epochs=4, n_test_prompts=20)


@pytest.mark.parametrize("kind", ["linear", "softmax"])
def test_many_runs_at_once_are_those_runs_one_after_another(kind) -> None:
    task = LinearSubspaces(n=5, d=2)
    together = train_layers(task, kind, SMALL, seeds=(0, 1, 2), dtype=torch.float64)
    for run, seed in enumerate((0, 1, 2)):
        alone = train_layers(task, kind, SMALL, seeds=(seed,), dtype=torch.float64)
        torch.testing.assert_close(together.W_QK[run], alone.W_QK[0], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(together.train_loss[run], alone.train_loss[0], rtol=1e-9, atol=1e-12)


def test_linear_attention_learns_a_scaled_identity_of_the_closed_forms_product() -> None:
    task = LinearSubspaces(n=6, d=3)
    settings = TrainingSettings(n_prompts=4000, batch_size=200, n_context=60, n_epochs=60, n_test_prompts=4000)
    trained = train_layers(task, "linear", settings, seeds=(0, 1))
    scale = optimal_linear_scale(task, 60)
    for run in (0, 1):
        assert float(trained.alpha[run] * trained.beta[run]) == pytest.approx(scale.beta, rel=0.08)
        assert float(trained.test_loss[run, -1]) == pytest.approx(scale.loss, rel=0.06)
    assert float(trained.test_loss[0, 0]) > 2 * scale.loss
    assert not trained.stuck.any()
    assert float(trained.off_diagonal.max()) < 0.35
    frame = trained.to_frame()
    assert frame["product"].tolist() == pytest.approx((trained.alpha * trained.beta).tolist())
    mixed = trained.W_QK.clone()
    mixed[1, 0, 0] *= -1
    from dataclasses import replace

    assert replace(trained, W_QK=mixed).stuck.tolist() == [False, True]
    assert replace(trained, W_QK=-trained.W_QK, W_OV=-trained.W_OV).stuck.tolist() == [False, False]


def test_a_transform_of_the_prompts_is_undone() -> None:
    """Appendix H: W_PV = αA⁻¹ and W_KQ = β(AAᵀ)⁻¹ lose what identities lose without the transform."""
    task = LinearSubspaces(n=5, d=2)
    generator = torch.Generator().manual_seed(4)
    matrix = torch.eye(5, dtype=torch.float64) + 0.4 * torch.randn(5, 5, generator=generator, dtype=torch.float64)
    plain, turned = task.sample(30, 12, seed=3), task.sample(30, 12, seed=3, transform=matrix)
    identity = torch.eye(5, dtype=torch.float64)
    W_KQ, W_PV = torch.linalg.inv(matrix @ matrix.T), torch.linalg.inv(matrix)
    for kind in ("linear", "softmax"):
        expected = attend(plain.context, plain.query, 0.4 * identity, 0.9 * identity, kind)
        estimate = attend(turned.context, turned.query, 0.4 * W_KQ.T, 0.9 * W_PV.T, kind)
        torch.testing.assert_close(estimate, expected, rtol=1e-8, atol=1e-9)


def test_targets_that_are_transformed_too_are_found_without_undoing_it() -> None:
    """A.13: Σ_t Y_t ⟨A⁻¹Y_t, A⁻¹Ỹ⟩ ÷ L is linear attention with W_KQ = (AAᵀ)⁻¹, and A times the plain estimate."""
    task = LinearSubspaces(n=5, d=2)
    generator = torch.Generator().manual_seed(5)
    matrix = torch.eye(5, dtype=torch.float64) + 0.4 * torch.randn(5, 5, generator=generator, dtype=torch.float64)
    plain, turned = task.sample(30, 12, seed=3), task.sample(30, 12, seed=3, transform=matrix)
    identity, inverse = torch.eye(5, dtype=torch.float64), torch.linalg.inv(matrix)
    estimate = attend(turned.context, turned.query, 0.4 * torch.linalg.inv(matrix @ matrix.T).T, identity, "linear")
    for prompt in range(30):
        y = turned.query[prompt]
        terms = [Y * torch.dot(inverse @ Y, inverse @ y) for Y in turned.context[prompt]]
        torch.testing.assert_close(estimate[prompt], 0.4 * sum(terms) / len(terms), rtol=1e-8, atol=1e-9)
    expected = attend(plain.context, plain.query, 0.4 * identity, identity, "linear") @ matrix.T
    torch.testing.assert_close(estimate, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"batch_size": 30}, "multiple"), ({"n_epochs": 0}, "n_epochs=0"), ({"learning_rate": 0.0}, "learning_rate=0.0")],
)
def test_settings_that_cannot_be_are_refused(change, message) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingSettings(**({"n_prompts": 40, "batch_size": 20} | change))


def test_a_training_that_diverges_is_refused() -> None:
    with pytest.raises(ValueError, match="learning rate below"):
        train_layers(
            LinearSubspaces(n=5, d=2),
            "linear",
            TrainingSettings(n_prompts=40, batch_size=20, learning_rate=1e30),
            seeds=(0,),
        )
    with pytest.raises(ValueError, match="at least one seed"):
        train_layers(LinearSubspaces(n=5, d=2), "linear", SMALL, seeds=())
    assert math.isfinite(float(train_layers(LinearSubspaces(n=5, d=2), "gaussian", SMALL, seeds=(3,)).alpha))


@pytest.mark.parametrize("kind", ["linear", "softmax", "gaussian"])
def test_runs_that_read_the_same_context_are_those_that_read_their_own_copy(draw, kind) -> None:
    context, query, *_ = draw
    W_QK, W_OV = torch.randn(2, 5, 1, N, N, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    together = attend(context[None], query[None], W_QK, W_OV, kind)
    apart = attend(context.expand(5, -1, -1, -1), query.expand(5, -1, -1), W_QK, W_OV, kind)
    assert together.shape == (5, 3, N)
    torch.testing.assert_close(together, apart, rtol=1e-12, atol=1e-14)


def test_shared_prompts_give_every_run_the_prompts_and_batches_of_the_first_seed() -> None:
    from dataclasses import replace

    task, settings = LinearSubspaces(n=5, d=2), replace(SMALL, shared_prompts=True)
    together = train_layers(task, "softmax", settings, seeds=(0, 1, 2), dtype=torch.float64)
    alone = train_layers(task, "softmax", SMALL, seeds=(0,), dtype=torch.float64)
    torch.testing.assert_close(together.W_QK[0], alone.W_QK[0], rtol=1e-9, atol=1e-12)
    other = train_layers(task, "softmax", SMALL, seeds=(1,), dtype=torch.float64)
    assert float((together.train_loss[1] - other.train_loss[0]).abs().max()) > 1e-3
