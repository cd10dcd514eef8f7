"""Baselines of in-context regression against closed forms, scikit-learn and a loop, on drawn prompts."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch
from sklearn.neighbors import KNeighborsRegressor

from aotlens.data import RegressionTask
from aotlens.denoise.regression import ESTIMATORS, baseline_errors, estimates
from aotlens.denoise.regression.baselines import lasso
from aotlens.evaluate import RegressionErrors, errors_of

LINEAR, SPARSE = RegressionTask(), RegressionTask(n_nonzero=3)


def deviation(result: RegressionErrors, expected: np.ndarray, at: list[int]) -> np.ndarray:
    """(measured − expected) ÷ the standard error of the mean over prompts, at these numbers of examples."""
    errors = result.errors[:, at]
    spread = errors.std(0, ddof=1) / len(errors) ** 0.5
    return (errors.mean(0) - expected[at]) / np.maximum(spread, 1e-12)


@pytest.mark.parametrize("task", [LINEAR, SPARSE], ids=["linear", "sparse"])
def test_least_squares_and_averaging_have_their_closed_forms(task: RegressionTask) -> None:
    examples = np.arange(41)
    least_squares = baseline_errors("least squares", task, n_points=26)
    expected = np.maximum(0, 1 - examples / 20)
    assert np.abs(deviation(least_squares, expected, [0, 1, 5, 10, 15, 19])).max() < 3.5
    assert least_squares.mean[20:].max() < 1e-8
    averaging = baseline_errors("averaging", task)
    of_averaging = np.concatenate([[1.0], 21 / examples[1:]])
    assert np.abs(deviation(averaging, of_averaging, [0, 1, 5, 10, 20, 40])).max() < 3.5


@pytest.mark.slow
def test_the_lasso_has_the_figures_of_the_literature() -> None:
    """At 15 examples one prompt in a thousand carries most of the mean, so that it takes six times as many."""
    expected = np.zeros(16)
    expected[[5, 10, 15]] = 0.606, 0.061, 0.0011
    for n_prompts, at in ((1280, [5, 10]), (6 * 1280, [15])):
        prompts = SPARSE.sample(n_prompts, 16, dtype=torch.float64)
        result = errors_of("lasso", SPARSE, prompts, lasso(prompts.inputs, prompts.labels, at))
        assert np.abs(deviation(result, expected, at)).max() < 3


def test_the_lasso_is_a_minimum() -> None:
    """Of ‖y − X w‖²/(2i) + α‖w‖₁, as L-BFGS finds it for w = a − b with a, b ≥ 0."""
    prompts = SPARSE.sample(4, 13, seed=5, dtype=torch.float64)
    every = estimates("lasso", prompts)
    torch.testing.assert_close(lasso(prompts.inputs, prompts.labels, [12])[:, 12], every[:, 12])
    for prompt in range(4):
        x, y = prompts.inputs[prompt, :12].numpy(), prompts.labels[prompt, :12].numpy()
        weights = _least_lasso_loss(x, y)
        expected = float(prompts.inputs[prompt, 12].numpy() @ weights)
        assert float(every[prompt, 12]) == pytest.approx(expected, abs=0.05)


def _least_lasso_loss(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    def loss_and_gradient(both: np.ndarray) -> tuple[float, np.ndarray]:
        positive, negative = np.split(both, 2)
        residual = y - x @ (positive - negative)
        slope = -x.T @ residual / len(x)
        gradient = np.concatenate([slope, -slope]) + 0.01
        return float(residual @ residual / (2 * len(x)) + 0.01 * both.sum()), gradient

    options = {"maxiter": 20_000, "maxfun": 100_000, "ftol": 1e-14, "gtol": 1e-9}
    start, bounds = np.full(2 * x.shape[1], 0.1), [(0, None)] * (2 * x.shape[1])
    best = scipy.optimize.minimize(
        loss_and_gradient, start, jac=True, bounds=bounds, method="L-BFGS-B", options=options
    )
    positive, negative = np.split(best.x, 2)
    return positive - negative


def test_the_three_nearest_are_scikit_learns() -> None:
    prompts = LINEAR.sample(5, 9, dtype=torch.float64)
    ours = estimates("3 nearest", prompts)
    for prompt in range(5):
        x, y = prompts.inputs[prompt].numpy(), prompts.labels[prompt].numpy()
        for i in range(1, 9):
            nearest = KNeighborsRegressor(min(3, i)).fit(x[:i], y[:i])
            assert float(ours[prompt, i]) == pytest.approx(float(nearest.predict(x[i : i + 1])[0]))


def test_least_squares_are_numpys_with_noise_and_with_inputs_of_fewer_dimensions() -> None:
    for task in (RegressionTask(d=4, noise_std=0.3), RegressionTask(d=4, n_dims=2)):
        prompts = task.sample(3, 9, dtype=torch.float64)
        ours = estimates("least squares", prompts)
        for prompt in range(3):
            x, y = prompts.inputs[prompt].numpy(), prompts.labels[prompt].numpy()
            for i in range(1, 9):
                weights = np.linalg.lstsq(x[:i], y[:i], rcond=1e-10)[0]
                assert float(ours[prompt, i]) == pytest.approx(float(x[i] @ weights), abs=1e-8)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_baseline_sees_what_comes_later(name: str) -> None:
    task = RegressionTask(d=3)
    prompts = task.sample(4, 6, dtype=torch.float64)
    before = estimates(name, prompts)
    assert not before[:, 0].any(), "without examples the answer is 0"
    prompts.inputs[:, 4:] += 1.0
    prompts.labels[:, 3:] += 1.0
    torch.testing.assert_close(estimates(name, prompts)[:, :4], before[:, :4])


def test_bands_hold_the_mean_and_shrink_with_prompts() -> None:
    few, many = (baseline_errors("averaging", RegressionTask(d=4), n_prompts=n) for n in (80, 1280))
    assert ((many.bands[:, 0] <= many.mean) & (many.mean <= many.bands[:, 1])).all()
    width = np.median(np.ptp(few.bands, axis=1) / np.ptp(many.bands, axis=1))
    assert 2.5 < width < 6, "16 times as many prompts: about 4 times as narrow"


def test_an_unknown_baseline_is_refused() -> None:
    with pytest.raises(ValueError, match="least squares"):
        baseline_errors("ridge", LINEAR)
