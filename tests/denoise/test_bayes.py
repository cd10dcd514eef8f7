"""Bayes predictors against mpmath, quadrature and importance sampling; losses and scales against simulation."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
import torch
from scipy import integrate

from aotlens.denoise.bayes import (
    BASELINES,
    bayes_loss,
    bessel_ratio,
    predict,
    predict_mixture,
    squared_errors,
)
from aotlens.denoise.one_layer import optimal_linear_scale, second_moment
from aotlens.denoise.tasks import TASKS, GaussianMixtures, LinearSubspaces, Spheres


@pytest.mark.parametrize("d", [1, 2, 8, 9, 63, 255, 512])
def test_the_bessel_ratio_agrees_with_mpmath(d) -> None:
    kappas = np.concatenate([[1e-300, 1e-12, 1e-6], np.logspace(-3, 8, 34)])
    with mpmath.workdps(40):
        for kappa, ratio in zip(kappas, bessel_ratio(kappas, d), strict=True):
            exact = mpmath.besseli((d + 1) / mpmath.mpf(2), kappa) / mpmath.besseli((d - 1) / mpmath.mpf(2), kappa)
            assert abs(mpmath.mpf(float(ratio)) / exact - 1) < 1e-10, (d, kappa)
    assert float(bessel_ratio(0.0, d)) == 0


@pytest.mark.parametrize("kappa", [-1.0, float("nan"), float("inf")])
def test_a_concentration_that_cannot_be_is_refused(kappa) -> None:
    with pytest.raises(ValueError, match="finite κ"):
        bessel_ratio(kappa, 3)


def test_the_circle_agrees_with_quadrature() -> None:
    task = Spheres(n=2, d=1, radius=1.3, noise_variance=0.4)
    prompts = task.sample(6, 3, seed=1)
    for query, mean in zip(prompts.query.numpy(), predict(task, prompts).numpy(), strict=True):

        def density(angle, query=query):
            point = 1.3 * np.array([np.cos(angle), np.sin(angle)])
            return np.exp(-((point - query) ** 2).sum() / 0.8)

        total = integrate.quad(density, 0, 2 * np.pi, epsabs=1e-13)[0]
        for axis, wave in enumerate((np.cos, np.sin)):
            moment = integrate.quad(lambda a: 1.3 * wave(a) * density(a), 0, 2 * np.pi, epsabs=1e-13)[0]  # noqa: B023
            assert mean[axis] == pytest.approx(moment / total, abs=1e-10)


def test_mixtures_of_unlike_variances_agree_with_quadrature_where_the_printed_weights_do_not() -> None:
    centers, variances, weights, noise = np.array([-1.0, 1.5]), np.array([0.05, 0.8]), np.array([0.3, 0.7]), 0.5
    errors = []
    for query in (-1.2, 0.1, 2.0):

        def density(x, query=query):
            prior = (weights * np.exp(-((x - centers) ** 2) / (2 * variances)) / np.sqrt(2 * np.pi * variances)).sum()
            return prior * np.exp(-((x - query) ** 2) / (2 * noise))

        total = integrate.quad(density, -12, 12, points=[-1, 1.5], epsabs=1e-13)[0]
        exact = integrate.quad(lambda x: x * density(x), -12, 12, points=[-1, 1.5], epsabs=1e-13)[0] / total
        mean = predict_mixture(
            torch.tensor([[query]]).double(),
            torch.from_numpy(centers)[None, :, None],
            torch.from_numpy(weights),
            torch.from_numpy(variances),
            noise,
        )
        assert float(mean) == pytest.approx(exact, abs=1e-7)
        total_variance = variances + noise
        printed = (
            weights * (total_variance / variances) ** 0.5 * np.exp(-((query - centers) ** 2) / (2 * total_variance))
        )
        means = (variances * query + noise * centers) / total_variance
        errors.append(abs((printed * means).sum() / printed.sum() - exact))
    assert max(errors) > 0.02


@pytest.mark.parametrize("name", list(TASKS))
def test_predictors_agree_with_importance_sampling(name) -> None:
    """E[X | x̃] as an average over fresh tokens of the same distribution, weighted by the noise's density."""
    small = {
        "subspaces": LinearSubspaces(n=3, d=2),
        "spheres": Spheres(n=4, d=2, noise_variance=0.5),
        "mixtures": GaussianMixtures(n=3, n_components=3, component_variance=0.3, noise_variance=0.5),
    }[name]
    prompts = small.sample(4, 200_000, seed=2)  # the context is the sample
    weights = (-(prompts.context - prompts.query[:, None]).pow(2).sum(-1) / (2 * small.noise_variance)).softmax(-1)
    estimate = (weights[..., None] * prompts.context).sum(1)
    spread = (weights[..., None].pow(2) * (prompts.context - estimate[:, None]).pow(2)).sum(1).sqrt()
    assert float(((predict(small, prompts) - estimate).abs() / spread).max()) < 4.5


def test_the_papers_losses_and_scales() -> None:
    subspaces, spheres, mixtures = TASKS.values()
    assert bayes_loss(subspaces).value == pytest.approx(16 / 3)
    scale = optimal_linear_scale(subspaces, 499)
    assert scale.beta == pytest.approx(499 / (508 * 3))
    assert scale.beta == pytest.approx(0.32743, abs=5e-6)
    assert scale.loss == pytest.approx(5.5223, abs=5e-5)
    assert optimal_linear_scale(spheres, 499).beta == pytest.approx(4.6621, abs=5e-5)
    assert optimal_linear_scale(mixtures, 499).beta == pytest.approx(3.0443, abs=1e-4)


@pytest.mark.parametrize("name", list(TASKS))
@pytest.mark.parametrize("n_context", [7, 60])
def test_closed_form_moments_agree_with_simulation(name, n_context) -> None:
    task = TASKS[name]
    prompts = task.sample(6000, n_context, seed=3)
    estimate = (prompts.query[:, None] @ second_moment(prompts.context))[:, 0]
    signal, power = task.linear_moments(n_context)
    for closed, draws in (
        (signal, (estimate * prompts.target).sum(-1)),
        (power, estimate.pow(2).sum(-1)),
        (task.mean_square, prompts.target.pow(2).sum(-1)),
    ):
        assert abs(float(draws.mean()) - closed) <= 4 * float(draws.std()) / 6000**0.5 + 1e-9
    scale = optimal_linear_scale(task, n_context)
    losses = [
        squared_errors(product * estimate, prompts).mean() for product in scale.beta * torch.tensor([0.8, 1, 1.2])
    ]
    assert losses[1] < losses[0] and losses[1] < losses[2]


@pytest.mark.parametrize("name", list(TASKS))
def test_bayes_loses_what_it_says_and_least_of_all(name) -> None:
    task = TASKS[name]
    prompts = task.sample(20_000, 1, seed=4)
    loss = bayes_loss(task, n_prompts=20_000)
    errors = squared_errors(predict(task, prompts), prompts)
    deviation = (float(errors.var()) / len(errors) + loss.standard_error**2) ** 0.5
    assert abs(float(errors.mean()) - loss.value) < 4 * deviation
    for name_of_baseline, baseline in BASELINES.items():
        if name_of_baseline != "Bayes" and not (name_of_baseline == "projection" and prompts.bases is None):
            paired = squared_errors(baseline(task, prompts), prompts) - errors
            assert float(paired.mean()) > -1e-9, name_of_baseline


def test_cases_that_are_done_by_hand() -> None:
    """A subspace that is everything (d = n), one component or center (K = 1), and noise that vanishes (σ → 0)."""
    whole = LinearSubspaces(n=3, d=3, signal_variance=2.0, noise_variance=0.5)
    prompts = whole.sample(5, 2, seed=1)
    torch.testing.assert_close(predict(whole, prompts), 0.8 * prompts.query, rtol=1e-12, atol=0)
    assert bayes_loss(whole).value == pytest.approx(3 * 2 * 0.5 / 2.5)

    single = GaussianMixtures(n=3, n_components=1, component_variance=0.2, noise_variance=0.6)
    prompts = single.sample(5, 2, seed=1)
    expected = (0.2 * prompts.query + 0.6 * prompts.centers[:, 0]) / 0.8
    torch.testing.assert_close(predict(single, prompts), expected, rtol=1e-12, atol=0)
    assert bayes_loss(single, n_prompts=10).value == pytest.approx(3 * 0.2 * 0.6 / 0.8)

    for quiet in (
        LinearSubspaces(n=5, d=2, noise_variance=1e-6),
        Spheres(n=5, d=2, noise_variance=1e-6),
        GaussianMixtures(n=5, n_components=2, noise_variance=1e-6),
    ):
        prompts = quiet.sample(6, 2, seed=3)
        torch.testing.assert_close(predict(quiet, prompts), prompts.target, rtol=0, atol=1e-2)
        assert bayes_loss(quiet, n_prompts=100).value < 1e-5


def test_a_transformed_prompt_has_the_same_answer() -> None:
    task = TASKS["spheres"]
    generator = torch.Generator().manual_seed(0)
    matrix = torch.eye(16, dtype=torch.float64) + 0.3 * torch.randn(16, 16, generator=generator, dtype=torch.float64)
    plain, turned = task.sample(20, 5, seed=6), task.sample(20, 5, seed=6, transform=matrix)
    torch.testing.assert_close(turned.context, plain.context @ matrix.T)
    assert torch.equal(turned.target, plain.target)
    torch.testing.assert_close(predict(task, turned), predict(task, plain), rtol=1e-8, atol=1e-9)
    with pytest.raises(ValueError, match="invertible"):
        task.sample(2, 5, transform=torch.zeros(16, 16))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearSubspaces(n=4, d=5), "n=4 has fewer"),
        (lambda: Spheres(n=4, d=4), "need 5 dimensions"),
        (lambda: GaussianMixtures(noise_variance=0), "noise_variance=0"),
        (lambda: LinearSubspaces(signal_variance=float("nan")), "positive finite"),
        (lambda: TASKS["spheres"].sample(0, 5), "at least 1 prompt"),
        (lambda: optimal_linear_scale(TASKS["spheres"], 0), "n_context=0: expected a whole number from 1"),
        (lambda: predict(TASKS["mixtures"], TASKS["spheres"].sample(1, 1)), "not drawn from"),
    ],
)
def test_tasks_that_cannot_be_are_refused(make, message) -> None:
    with pytest.raises(ValueError, match=message):
        make()
