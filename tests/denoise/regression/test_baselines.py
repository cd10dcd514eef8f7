"""Baselines of in-context regression against closed forms, scikit-learn and a loop, on drawn prompts."""

from __future__ import annotations

import warnings
from itertools import combinations, product

import numpy as np
import pytest
import torch
from sklearn.linear_model import Lasso, LassoLars, Ridge
from sklearn.neighbors import KNeighborsRegressor

from aotlens.data import RegressionTask
from aotlens.denoise.regression import ESTIMATORS, baseline_errors, estimates, shown_baselines
from aotlens.denoise.regression.baselines import LASSO_ALPHA, lasso
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


@pytest.mark.long
def test_the_lasso_has_the_figures_of_the_literature() -> None:
    """At 15 examples one prompt in a thousand carries most of the mean, so that it takes six times as many."""
    expected = np.zeros(16)
    expected[[5, 10, 15]] = 0.606, 0.061, 0.0011
    for n_prompts, at in ((1280, [5, 10]), (6 * 1280, [15])):
        prompts = SPARSE.sample(n_prompts, 16, dtype=torch.float64)
        result = errors_of("lasso", SPARSE, prompts, lasso(prompts.inputs, prompts.labels, points=at))
        assert np.abs(deviation(result, expected, at)).max() < 3


def test_the_lasso_is_the_minimiser() -> None:
    """As least-angle regression finds it, which follows its path exactly; scikit-learn's default tolerance is off by
    .01 to 1 here."""
    prompts = SPARSE.sample(8, 22, seed=5, dtype=torch.float64)
    every = estimates("lasso", prompts, SPARSE)
    torch.testing.assert_close(lasso(prompts.inputs, prompts.labels, points=[12])[:, 12], every[:, 12])
    exact = LassoLars(alpha=LASSO_ALPHA, fit_intercept=False, eps=1e-14)
    for x, y, said in zip(prompts.inputs.numpy(), prompts.labels.numpy(), every.numpy(), strict=True):
        expected = [x[i] @ exact.fit(x[:i], y[:i]).coef_ for i in range(1, 22)]
        np.testing.assert_allclose(said[1:], expected, atol=1e-6)


def test_the_lasso_of_columns_that_are_nearly_collinear_is_the_minimiser() -> None:
    """Where coordinate descent creeps; of two examples every support and sign can be tried."""
    task = RegressionTask(d=10, n_nonzero=3)
    prompts = task.sample(400, 3, dtype=torch.float64)
    said = estimates("lasso", prompts, task)
    descent = Lasso(alpha=LASSO_ALPHA, fit_intercept=False, tol=1e-10, max_iter=20_000)
    hard = 0
    for x, y, estimate in zip(prompts.inputs.numpy(), prompts.labels.numpy(), said.numpy(), strict=True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            descent.fit(x[:2], y[:2])
        if caught:
            hard += 1
            assert estimate[2] == pytest.approx(float(x[2] @ _least_lasso_weights(x[:2], y[:2])), abs=1e-8)
    assert hard > 0


def _least_lasso_weights(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The least of ‖y − X w‖²/4 + α‖w‖₁ over all w of two nonzero coordinates with given signs, or of one, or none."""
    best, weights = float(y @ y) / 4, np.zeros(x.shape[1])
    for support in (*combinations(range(x.shape[1]), 1), *combinations(range(x.shape[1]), 2)):
        columns = x[:, support]
        for signs in product((-1, 1), repeat=len(support)):
            w = np.linalg.solve(columns.T @ columns, columns.T @ y - 2 * LASSO_ALPHA * np.array(signs))
            loss = np.square(y - columns @ w).sum() / 4 + LASSO_ALPHA * np.abs(w).sum()
            if loss < best:
                best, weights = loss, np.zeros(x.shape[1])
                weights[list(support)] = w
    return weights


def test_the_lasso_that_does_not_converge_is_refused() -> None:
    huge = torch.full((1, 3, 2), 1e200, dtype=torch.float64)
    with pytest.raises(ValueError, match="duality gap"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lasso(huge, torch.full((1, 3), 1e200, dtype=torch.float64))


def test_ridge_is_scikit_learns() -> None:
    for task, weight in ((RegressionTask(d=4, noise_std=0.5), 0.25), (RegressionTask(d=4), 0.1)):
        prompts = task.sample(3, 8, dtype=torch.float64)
        said = estimates("ridge", prompts, task)
        for prompt, i in np.ndindex(3, 8):
            if i:
                x, y = prompts.inputs[prompt].numpy(), prompts.labels[prompt].numpy()
                expected = x[i] @ Ridge(alpha=weight, fit_intercept=False).fit(x[:i], y[:i]).coef_
                assert float(said[prompt, i]) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("nonzero", [None, 1, 2])
def test_bayes_is_the_mean_of_many_weights_by_their_likelihood(nonzero: int | None) -> None:
    """Importance sampling from the prior, which knows neither supports nor matrices."""
    task = RegressionTask(d=3, n_nonzero=nonzero, noise_std=0.8, n_dims=3 if nonzero else 2)
    prompts = task.sample(2, 5, seed=3, dtype=torch.float64)
    prior = task.sample(400_000, 1, seed=4, dtype=torch.float64).weights.numpy()
    if nonzero is None:
        prior[:, 2:] = 0.0
    said = estimates("Bayes", prompts, task)
    for prompt in range(2):
        x, y = prompts.inputs[prompt].numpy(), prompts.labels[prompt].numpy()
        for i in range(1, 5):
            log_likelihood = -np.square(y[:i] - prior @ x[:i].T).sum(1) / (2 * 0.64)
            share = np.exp(log_likelihood - log_likelihood.max())
            expected = share @ (prior @ x[i]) / share.sum()
            assert float(said[prompt, i]) == pytest.approx(expected, abs=0.02)


def test_no_baseline_is_below_bayes_and_ridge_is_it_on_the_linear_task() -> None:
    linear = RegressionTask(d=4, noise_std=0.5)
    prompts = linear.sample(5, 9, dtype=torch.float64)
    torch.testing.assert_close(estimates("Bayes", prompts, linear), estimates("ridge", prompts, linear))
    sparse = RegressionTask(d=6, n_nonzero=2, noise_std=0.5)
    errors = {name: baseline_errors(name, sparse, n_prompts=300).errors for name in ESTIMATORS}
    best = errors.pop("Bayes")
    for name, other in errors.items():
        gap = (other - best)[:, 1:]
        assert (gap.mean(0) > -3 * gap.std(0, ddof=1) / len(gap) ** 0.5).all(), name


def test_bayes_needs_noise_and_supports_that_can_be_counted() -> None:
    with pytest.raises(ValueError, match="noise_std"):
        baseline_errors("Bayes", LINEAR, n_prompts=2)
    many = RegressionTask(d=40, n_nonzero=20, noise_std=0.1)
    with pytest.raises(ValueError, match="20 of 40"):
        baseline_errors("Bayes", many, n_prompts=2)
    assert "Bayes" not in shown_baselines(many) and "Bayes" in shown_baselines(RegressionTask(noise_std=0.1))


def test_the_three_nearest_are_scikit_learns() -> None:
    prompts = LINEAR.sample(5, 9, dtype=torch.float64)
    ours = estimates("3 nearest", prompts, LINEAR)
    for prompt in range(5):
        x, y = prompts.inputs[prompt].numpy(), prompts.labels[prompt].numpy()
        for i in range(1, 9):
            nearest = KNeighborsRegressor(min(3, i)).fit(x[:i], y[:i])
            assert float(ours[prompt, i]) == pytest.approx(float(nearest.predict(x[i : i + 1])[0]))


def test_least_squares_are_numpys_with_noise_and_with_inputs_of_fewer_dimensions() -> None:
    for task in (RegressionTask(d=4, noise_std=0.3), RegressionTask(d=4, n_dims=2)):
        prompts = task.sample(3, 9, dtype=torch.float64)
        ours = estimates("least squares", prompts, task)
        for prompt in range(3):
            x, y = prompts.inputs[prompt].numpy(), prompts.labels[prompt].numpy()
            for i in range(1, 9):
                weights = np.linalg.lstsq(x[:i], y[:i], rcond=1e-10)[0]
                assert float(ours[prompt, i]) == pytest.approx(float(x[i] @ weights), abs=1e-8)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_baseline_sees_what_comes_later(name: str) -> None:
    task = RegressionTask(d=3, n_nonzero=2, noise_std=0.3)
    prompts = task.sample(4, 6, dtype=torch.float64)
    before = estimates(name, prompts, task)
    assert not before[:, 0].any(), "without examples the answer is 0"
    prompts.inputs[:, 4:] += 1.0
    prompts.labels[:, 3:] += 1.0
    torch.testing.assert_close(estimates(name, prompts, task)[:, :4], before[:, :4])


def test_bands_hold_the_mean_and_shrink_with_prompts() -> None:
    few, many = (baseline_errors("averaging", RegressionTask(d=4), n_prompts=n) for n in (80, 1280))
    assert ((many.bands[:, 0] <= many.mean) & (many.mean <= many.bands[:, 1])).all()
    width = np.median(np.ptp(few.bands, axis=1) / np.ptp(many.bands, axis=1))
    assert 2.5 < width < 6, "16 times as many prompts: about 4 times as narrow"


def test_an_unknown_baseline_is_refused() -> None:
    with pytest.raises(ValueError, match="least squares"):
        baseline_errors("kernel ridge", LINEAR)
