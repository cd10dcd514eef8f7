"""Answers read off after each layer, and the descents next to them, against plain loops; layers that take one step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import aotlens
from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.data import RegressionPrompts, RegressionTask
from aotlens.denoise.regression import (
    Spectra,
    estimates,
    fit_descent,
    one_step,
    one_step_interleaved,
    one_step_paired,
    paired_tokens,
    read_layers,
)
from aotlens.denoise.regression.layers import _growth
from aotlens.evaluate import regression_estimates
from aotlens.heads import ablate
from aotlens.models import AttentionOnlyTransformer, ModelConfig

TASK = RegressionTask(d=3)


@pytest.mark.parametrize("factor", [0.0, 0.11])
def test_steps_are_those_of_the_loop(factor: float) -> None:
    prompts = TASK.sample(4, 7, dtype=torch.float64)
    size = torch.linspace(0.1, 0.3, 7, dtype=torch.float64)
    said = Spectra.of(prompts).estimates(4, size, torch.full_like(size, factor))
    for prompt in range(4):
        for i in range(7):
            x, y = prompts.inputs[prompt, :i], prompts.labels[prompt, :i]
            w = torch.zeros(3, dtype=torch.float64)
            for _ in range(4 if i else 0):
                gradient = x.T @ (y - x @ w) / i
                w = w + size[i] * (gradient - factor * (x.T @ (x @ gradient)) / i)
            assert float(said[prompt, i]) == pytest.approx(float(prompts.inputs[prompt, i] @ w), abs=1e-10)


def test_a_step_is_that_of_the_hand_built_model() -> None:
    prompts = TASK.sample(4, 6, dtype=torch.float64)
    counts = torch.arange(6, dtype=torch.float64)
    in_means = Spectra.of(prompts).estimates(1, 0.4 * counts, torch.zeros(6).double())
    torch.testing.assert_close(in_means, one_step(prompts, torch.full((6,), 0.4).double()))


def test_many_steps_reach_least_squares_and_more_steps_take_away_more() -> None:
    prompts = TASK.sample(64, 8, dtype=torch.float64)
    spectra = Spectra.of(prompts)
    far = spectra.estimates(20_000, 1 / spectra.eigenvalues[..., -1].amax(0).clamp(min=1), torch.zeros(8).double())
    torch.testing.assert_close(far[:, 1:3], estimates("least squares", prompts, TASK)[:, 1:3], atol=1e-3, rtol=1e-3)
    losses = {}
    for algorithm in ("gradient", "preconditioned"):
        said = fit_descent(algorithm, spectra, 3).estimates(spectra)
        losses[algorithm] = (said - prompts.labels).pow(2).mean(1)[:, 1:]
        assert (losses[algorithm].mean(1).diff() < 0).all(), "more steps take away more"
    assert (losses["preconditioned"] <= losses["gradient"] + 1e-12).all(), "γ = 0 is among its choices"
    with pytest.raises(ValueError, match="'gradient', 'preconditioned'"):
        fit_descent("newton", spectra, 1)


@pytest.mark.parametrize("algorithm", ["gradient", "preconditioned"])
def test_step_sizes_do_well_on_prompts_that_they_were_not_fitted_on(algorithm: str) -> None:
    """The best on few prompts without a bound on growth had 1.3 and 243 times the zero predictor's error after 6."""
    task = RegressionTask(d=5)
    fit, others = (Spectra.of(task.sample(n, 11, n, dtype=torch.float64)) for n in (256, 4000))
    said = fit_descent(algorithm, fit, 6).estimates(others)
    errors = (said - others.labels).pow(2).mean(1)[:, 1:].mean(1) / task.zero_error
    assert (errors.diff() < 0).all() and errors[-1] < 0.4, errors


def test_growth_is_the_largest_on_a_grid_of_eigenvalues() -> None:
    size, factor, largest = (torch.rand(50, dtype=torch.float64) * scale for scale in (2.0, 1.5, 3.0))
    eigenvalues = largest * torch.linspace(0, 1, 20_001, dtype=torch.float64)[:, None]
    growth = (1 - size * eigenvalues * (1 - factor * eigenvalues)).abs().amax(0)
    torch.testing.assert_close(_growth(size, factor, largest), growth, atol=1e-6, rtol=0)


def test_the_hand_built_model_takes_its_step_in_the_second_layer() -> None:
    model = one_step_interleaved(3, 7, 2.0)
    readings = read_layers(model, TASK, n_prompts=200, n_steps=3)
    errors = readings.probe_errors[:, 1:].mean(1)
    assert abs(errors[0] - 1) < 0.1 and abs(errors[1] - 1) < 0.1 and errors[2] < 0.75
    assert readings.nearest[-1] == ("gradient", 1)
    frame = readings.to_frame()
    assert list(frame.steps)[-1] == 1 and len(frame) == 3 and "1 step of gradient descent" in readings.headline
    least_squares = readings.algorithm_errors[readings.algorithms.index(("least squares", 1))]
    assert least_squares[3:].max() < 1e-9


def test_the_probe_of_the_last_layer_is_at_least_as_good_as_the_read_out() -> None:
    """A linear map with a constant, fitted for the purpose, against the model's own linear map."""
    cfg = ModelConfig(
        n_layers=2, d_model=16, n_heads=2, d_head=8, n_ctx=11, read_in="vectors", d_in=3, read_out="vectors", d_out=1,
        bias=True,
    )  # fmt: skip
    readings = read_layers(AttentionOnlyTransformer(cfg), TASK, n_prompts=300)
    assert readings.probe_errors[-1].mean() < readings.model_errors.mean()
    assert np.isfinite(readings.distance).all() and readings.distance.shape == (3, 13)


def test_too_few_prompts_and_other_models_are_refused() -> None:
    with pytest.raises(ValueError, match="to fit a probe on"):
        read_layers(one_step_interleaved(3, 7), TASK, n_prompts=2)
    with pytest.raises(ValueError, match="d_in=4"):
        read_layers(one_step_interleaved(3, 7), RegressionTask(d=4))


ETA, D, N = 0.7, 4, 6


@pytest.fixture
def prompts() -> RegressionPrompts:
    return RegressionTask(d=D).sample(5, N, seed=2, dtype=torch.float64)


def by_autograd(prompts: RegressionPrompts, point: int, step_size: float) -> Tensor:
    """x·w after one step of that size from 0 on ½Σ(y_j − w·x_j)², the gradient being autograd's."""
    w = torch.zeros(len(prompts), D, dtype=torch.float64, requires_grad=True)
    residual = prompts.labels[:, :point] - (prompts.inputs[:, :point] @ w[..., None])[..., 0]
    (gradient,) = torch.autograd.grad(0.5 * residual.pow(2).sum(), w)
    return (prompts.inputs[:, point] * (-step_size * gradient)).sum(-1)


def test_one_layer_on_pairs_is_a_step(prompts: RegressionPrompts) -> None:
    model = one_step_paired(D, N, ETA)
    with torch.no_grad():
        answer = model(paired_tokens(prompts))[:, -1, -1]
    examples = N - 1
    assert (answer - by_autograd(prompts, examples, ETA / (examples + 1))).abs().max() < 1e-10


def test_two_layers_on_interleaved_tokens_are_a_step_at_every_input(prompts: RegressionPrompts) -> None:
    answers = regression_estimates(one_step_interleaved(D, N, ETA), prompts)
    for examples in range(N):
        expected = by_autograd(prompts, examples, ETA / (2 * examples + 1))
        assert (answers[:, examples] - expected).abs().max() < 1e-10, examples
    sizes = ETA / (2 * torch.arange(N, dtype=torch.float64) + 1)
    torch.testing.assert_close(answers, one_step(prompts, sizes), rtol=0, atol=1e-10)


def test_the_first_layer_copies_each_input_to_its_label(prompts: RegressionPrompts) -> None:
    model = one_step_interleaved(D, N, ETA)
    _, cache = model.run_with_cache(prompts.tokens)
    pattern = cache["pattern", 0][:, 0]
    for label in range(1, 2 * N - 1, 2):
        expected = torch.zeros(2 * N - 1, dtype=torch.float64)
        expected[label - 1] = 1.0
        torch.testing.assert_close(pattern[:, label], expected.expand(len(prompts), -1))


def test_it_loads_prints_and_ablates_as_any_checkpoint(prompts: RegressionPrompts, tmp_path: Path) -> None:
    model = one_step_interleaved(D, N, ETA)
    save_checkpoint(tmp_path / "step", model, CheckpointInfo(name="step", description="One step of descent."))
    loaded = aotlens.load(tmp_path / "step", device="cpu")
    assert "step" in str(loaded.card.name) and "linear" in loaded.card.card
    torch.testing.assert_close(loaded(prompts.tokens.float()), model(prompts.tokens).float())
    for head in ("0.0", "1.0"):
        without = ablate(loaded, prompts.tokens.float(), head, metric=lambda logits, _: logits[:, ::2, 0].abs().sum(1))
        assert (without.clean > 0).all() and not without.ablated.any(), "nothing is left of the estimate"
