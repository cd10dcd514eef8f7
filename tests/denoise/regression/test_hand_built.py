"""Linear attention built by hand performs one step of gradient descent, to 1e-10."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import aotlens
from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.data import RegressionPrompts, RegressionTask
from aotlens.denoise.regression import one_step, one_step_interleaved, one_step_paired, paired_tokens
from aotlens.evaluate import regression_estimates
from aotlens.heads import ablate

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
