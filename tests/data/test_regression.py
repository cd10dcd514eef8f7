"""Prompts of in-context regression: their distribution, their order, and that (seed, step) decide them."""

from __future__ import annotations

import dataclasses

import pytest
import scipy.stats
import torch

from aotlens.data import Curriculum, RegressionTask, interleave
from aotlens.data.regression import standard_normal
from tests.messages import refused


def test_labels_are_what_the_weights_say() -> None:
    prompts = RegressionTask(d=5).sample(7, 4, seed=3, dtype=torch.float64)
    for prompt in range(7):
        for point in range(4):
            label = sum(float(prompts.weights[prompt, k]) * float(prompts.inputs[prompt, point, k]) for k in range(5))
            assert prompts.labels[prompt, point] == pytest.approx(label, abs=1e-12)


def test_tokens_take_turns_and_only_estimates_at_inputs_count() -> None:
    prompts = RegressionTask(d=3).sample(2, 4)
    tokens, targets = prompts.tokens, prompts.targets
    assert tokens.shape == (2, 7, 3) and targets.shape == (2, 7, 1)
    for point in range(4):
        torch.testing.assert_close(tokens[:, 2 * point], prompts.inputs[:, point])
        torch.testing.assert_close(targets[:, 2 * point, 0], prompts.labels[:, point])
    for point in range(3):
        torch.testing.assert_close(tokens[:, 2 * point + 1, 0], prompts.labels[:, point])
        assert not tokens[:, 2 * point + 1, 1:].any() and targets[:, 2 * point + 1].isnan().all()
    torch.testing.assert_close(interleave(prompts.inputs, prompts.labels[:, :3]), tokens)
    with refused("label", "of 4"):
        interleave(prompts.inputs, prompts.labels[:, :2])


def test_a_step_is_a_function_of_seed_and_step_alone() -> None:
    task = RegressionTask(d=4, n_nonzero=2, noise_std=0.5)
    first = task.sample(5, 6, seed=1, step=2)
    again, other_step, other_seed = task.sample(5, 6, 1, 2), task.sample(5, 6, 1, 3), task.sample(5, 6, 2, 2)
    assert torch.equal(first.inputs, again.inputs) and torch.equal(first.labels, again.labels)
    for other in (other_step, other_seed):
        assert not torch.equal(first.inputs, other.inputs) and not torch.equal(first.weights, other.weights)


def test_numbers_are_normal() -> None:
    drawn = standard_normal(0, 6, 0, (200, 100)).ravel()
    assert scipy.stats.kstest(drawn, "norm").pvalue > 1e-3
    weights = standard_normal(0, 7, 0, (200, 100)).ravel()
    assert abs(scipy.stats.pearsonr(drawn, weights).statistic) < 4 / 20_000**0.5


def test_a_sparse_task_has_so_many_weights_everywhere() -> None:
    prompts = RegressionTask(d=20, n_nonzero=3).sample(2000, 1)
    support = prompts.weights != 0
    assert (support.sum(1) == 3).all()
    share = support.double().mean(0)
    assert (share - 3 / 20).abs().max() < 4 * (0.15 * 0.85 / 2000) ** 0.5


@pytest.mark.parametrize("n_nonzero", [None, 3])
def test_the_zero_predictor_gets_what_the_task_says(n_nonzero: int | None) -> None:
    task = RegressionTask(d=6, n_nonzero=n_nonzero, input_scale=2.0, input_mean=0.5)
    labels = task.sample(20_000, 1, dtype=torch.float64).labels
    squares = labels.pow(2)
    assert abs(float(squares.mean()) - task.zero_error) < 4 * float(squares.std()) / len(labels) ** 0.5
    assert RegressionTask(d=20, n_nonzero=n_nonzero, input_scale=1, input_mean=0).zero_error == (n_nonzero or 20)


def test_a_skewed_covariance_has_its_eigenvalues_in_a_basis_of_each_prompt() -> None:
    task = RegressionTask(d=4, input_skew=2.0, input_scale=1.5, n_dims=3)
    prompts = task.sample(3, 40_000, seed=1, dtype=torch.float64)
    assert not prompts.inputs[..., 3:].any()
    expected = 1.5**2 * 3 * torch.tensor([1.0, 1 / 4, 1 / 9], dtype=torch.float64) / (1 + 1 / 4 + 1 / 9)
    leading = []
    for inputs in prompts.inputs[..., :3]:
        values, vectors = torch.linalg.eigh(inputs.mT @ inputs / len(inputs))
        torch.testing.assert_close(values.flip(0), expected, rtol=0.05, atol=0)
        leading.append(vectors[:, -1])
    assert max(abs(float(leading[0] @ leading[1])), abs(float(leading[1] @ leading[2]))) < 0.99
    many = task.sample(20_000, 1, dtype=torch.float64)
    outer = many.inputs[:, 0, :3].mT @ many.inputs[:, 0, :3] / 20_000  # no direction is preferred over prompts
    torch.testing.assert_close(outer, 1.5**2 * torch.eye(3, dtype=torch.float64), rtol=0.1, atol=0.12)
    assert task.zero_error == 3 * 1.5**2
    squares = many.labels.pow(2)
    assert abs(float(squares.mean()) - task.zero_error) < 4 * float(squares.std()) / 20_000**0.5
    plain, none = RegressionTask(d=4).sample(2, 3), RegressionTask(d=4, input_skew=0.0).sample(2, 3)
    assert torch.equal(plain.inputs, none.inputs)


def test_fewer_dimensions_leave_coordinates_out() -> None:
    task = RegressionTask(d=6, n_nonzero=3, n_dims=2)
    prompts = task.sample(50, 3)
    assert not prompts.inputs[..., 2:].any() and (prompts.weights[:, :2] != 0).all()
    assert not prompts.weights[:, 2:].any() and task.zero_error == 2
    assert dataclasses.replace(task, n_nonzero=None, n_dims=4).zero_error == 4


def test_noise_is_added_to_labels() -> None:
    clean, noisy = (RegressionTask(d=2, noise_std=s).sample(3000, 2, dtype=torch.float64) for s in (0.0, 0.3))
    noise = (noisy.labels - clean.labels).ravel().numpy()
    assert scipy.stats.kstest(noise / 0.3, "norm").pvalue > 1e-3


def test_a_curriculum_grows_to_its_end() -> None:
    garg = Curriculum(dims_start=5, dims_end=20, points_start=11, points_end=41)
    assert [garg.at(step) for step in (0, 1999, 2000, 30_000, 49_999)] == [
        (5, 11), (5, 11), (6, 13), (20, 41), (20, 41),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"d": 0},
        {"d": 4, "n_nonzero": 5},
        {"d": 4, "n_dims": 0},
        {"noise_std": -1.0},
        {"input_scale": 0},
        {"input_skew": -1},
    ],
)
def test_a_task_that_does_not_fit_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        RegressionTask(**wrong)  # type: ignore[arg-type]


def test_prompts_and_curricula_that_do_not_fit_are_refused() -> None:
    with refused("n_prompts=0", "from 1"):
        RegressionTask().sample(0, 3)
    with pytest.raises(ValueError, match="dims 5 to 3"):
        Curriculum(dims_start=5, dims_end=3, points_start=1, points_end=2)
    with pytest.raises(ValueError, match="every ≥ 1"):
        Curriculum(dims_start=1, dims_end=3, points_start=1, points_end=2, every=0)
