"""Convergence and losses by context against brute force: quadrature for expectations, loops for errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate

from analyses._context_losses import losses_by_context
from analyses._convergence import check_proposition_6, fit_proposition_5, small_weight_error
from aotlens.denoise import LinearSubspaces, TrainingSettings, train_layers
from aotlens.denoise.one_layer import attend


def test_small_weights_have_an_error_of_first_order() -> None:
    prompts = LinearSubspaces(n=5, d=3).sample(6, 30)
    W_QK, W_OV = torch.randn(2, 5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    errors = small_weight_error(prompts, W_QK, W_OV, [1e-2, 1e-3, 1e-4])
    assert (errors[:-1] / errors[1:]).tolist() == pytest.approx([10, 10], rel=0.2)
    context, query = prompts.context[0].numpy(), prompts.query[0].numpy()
    scores = 1e-2 * context @ (W_QK.numpy().T @ query)
    pattern = np.exp(scores) / np.exp(scores).sum()
    exact = pattern @ context @ W_OV.numpy() / 1e-2
    covariance = np.cov(context.T, bias=True)
    limit = context.mean(0) @ W_OV.numpy() / 1e-2 + query @ W_QK.numpy() @ covariance @ W_OV.numpy()
    first = small_weight_error(
        type(prompts)(context=prompts.context[:1], query=prompts.query[:1], target=prompts.target[:1]),
        W_QK, W_OV, [1e-2],
    )  # fmt: skip
    assert float(first) == pytest.approx(np.abs(exact - limit).max())


def test_the_fitted_constant_holds_in_its_share_of_fresh_prompts() -> None:
    fitted = fit_proposition_5([3, 6], [20, 200], delta=0.1, n_prompts=4000, seed=1)
    rng = np.random.default_rng(2)
    for i, d in enumerate(fitted.dimensions):
        for j, length in enumerate(fitted.n_contexts):
            rate = (d + math.log(2 / 0.1)) / length
            bound = float(fitted.constants[i, j]) * max(math.sqrt(rate), rate)
            held = 0
            for _ in range(1500):
                X, query = rng.normal(size=(length, d)), rng.normal(size=d)
                error = np.abs(X.T @ (X @ query) / length - query).max() / np.linalg.norm(query)
                held += error < bound
            assert held / 1500 == pytest.approx(0.9, abs=0.04)


def test_proposition_5_is_fitted_to_the_papers_bound() -> None:
    """d = 2, L = 5, δ = 0.2: r = (2 + ln 10) ÷ 5 = 0.860517, so that C is the 80% quantile ÷ √r = 0.927641."""
    fitted = fit_proposition_5([2], [5], delta=0.2, n_prompts=50, seed=3)
    generator = torch.Generator().manual_seed(3)
    queries, contexts = (
        torch.randn(shape, dtype=torch.float64, generator=generator).numpy() for shape in ((50, 2), (50, 5, 2))
    )
    errors = []
    for query, X in zip(queries, contexts, strict=True):
        unit = query / np.linalg.norm(query)
        errors.append(np.abs(X.T @ (X @ unit) / 5 - unit).max())
    assert float(fitted.constants[0, 0]) == pytest.approx(np.quantile(errors, 0.8) / 0.927641, rel=2e-6)


def test_proposition_6_has_the_papers_bounds() -> None:
    """d = 3, L = 7, δ = 0.1, κ = 1.5, where E e^(κ cos θ) = sinh κ ÷ κ and the mean cosine is coth κ − 1/κ.

    The bounds are sinh κ √(2/7 ln 20) = 1.969927 and e^κ √(2/7 ln 60) = 4.847300.
    """
    check = check_proposition_6([1.5], d=3, n_context=7, delta=0.1, n_prompts=40, seed=5)
    generator = torch.Generator().manual_seed(5)
    contexts, queries = (
        torch.randn(shape, dtype=torch.float64, generator=generator).numpy() for shape in ((40, 7, 3), (40, 3))
    )
    expected = np.sinh(1.5) / 1.5
    along = expected * (1 / np.tanh(1.5) - 1 / 1.5)
    of_sum, of_vector = [], []
    for X, query in zip(contexts, queries, strict=True):
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
        unit = query / np.linalg.norm(query)
        weights = np.exp(1.5 * X @ unit)
        of_sum.append(abs(weights.mean() - expected))
        of_vector.append(np.abs(weights @ X / 7 - along * unit).max())
    assert float(check.slack_sum[0]) == pytest.approx(1.969927 / np.quantile(of_sum, 0.9), rel=2e-6)
    assert float(check.slack_vector[0]) == pytest.approx(4.847300 / np.quantile(of_vector, 0.9), rel=2e-6)


def test_the_expectations_of_proposition_6_are_integrals() -> None:
    """With a context long enough, the sums lie at their expectations: the errors are those of the sample alone."""
    d, kappas = 4, (0.3, 2.0)
    check = check_proposition_6(kappas, d=d, n_context=4000, n_prompts=300)
    for place, kappa in enumerate(kappas):

        def density(theta: float, power: int, kappa: float = kappa) -> float:
            return math.exp(kappa * math.cos(theta)) * math.sin(theta) ** (d - 2) * math.cos(theta) ** power

        total = integrate.quad(lambda t: math.sin(t) ** (d - 2), 0, math.pi)[0]
        mean = integrate.quad(density, 0, math.pi, args=(0,))[0] / total
        second = integrate.quad(lambda t, k=kappa: math.exp(2 * k * math.cos(t)) * math.sin(t) ** 2, 0, math.pi)[0]
        deviation = math.sqrt((second / total - mean**2) / 4000)
        # The 95% quantile of a normal error, which a wrong expectation would shift.
        bound = math.sinh(kappa) * math.sqrt(2 * math.log(40) / 4000)
        assert float(check.slack_sum[place]) == pytest.approx(bound / (1.96 * deviation), rel=0.15)
        assert float(check.slack_vector[place]) > 1
    assert check.held_sum.tolist() == [1, 1] and check.held_vector.tolist() == [1, 1]


@pytest.mark.parametrize("kind", ["linear", "softmax"])
def test_losses_are_those_of_the_beginnings_of_contexts(kind: str) -> None:
    settings = TrainingSettings(n_prompts=20, batch_size=10, n_context=12, n_epochs=2, n_test_prompts=6)
    layers = train_layers(LinearSubspaces(n=5, d=2), kind, settings, seeds=(0, 1))
    tasks = {"d = 1": LinearSubspaces(n=5, d=1), "d = 4": LinearSubspaces(n=5, d=4)}
    result = losses_by_context(layers, [3, 8], tasks=tasks, n_prompts=7, seed=4)
    assert result.loss.shape == (2, 2, 2) and result.bayes.tolist() == pytest.approx([2 / 3, 8 / 3])
    for index, task in enumerate(tasks.values()):
        prompts = task.sample(7, 8, 4)
        for run in range(2):
            for place, length in enumerate((3, 8)):
                errors = [
                    (attend(c[:length], q, layers.W_QK[run].double(), layers.W_OV[run].double(), kind) - x).pow(2).sum()
                    for c, q, x in zip(prompts.context, prompts.query, prompts.target, strict=True)
                ]
                assert float(result.loss[index, run, place]) == pytest.approx(float(torch.stack(errors).mean()))
