"""Several layers against loops over tokens; the first is the paper's layer, and tied layers are one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from analyses._deep_denoisers import train_depth, with_noise
from aotlens.denoise import GaussianMixtures, LinearSubspaces, Prompts, TrainingSettings
from aotlens.denoise.training import sample_test_prompts

SETTINGS = TrainingSettings(n_prompts=40, batch_size=20, n_context=9, n_epochs=3, n_test_prompts=6)
TASK = GaussianMixtures(n=4, n_components=3)


def looped(
    context: np.ndarray, query: np.ndarray, weights: list[tuple], still: str | None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The query's states and the contexts that layers read, token by token."""
    states, contexts = [query], []
    for layer, (W_QK, W_OV, skip, kind) in enumerate(weights):
        contexts.append(context)
        moved = []
        for token in (*context, states[-1]):
            scores = context @ (W_QK.T @ token)
            pattern = scores / len(scores) if kind == "linear" else np.exp(scores) / np.exp(scores).sum()
            moved.append(skip * token + pattern @ context @ W_OV)
        states.append(query if still == "query" and layer < len(weights) - 1 else moved[-1])
        if still != "context":
            context = np.array(moved[:-1])
    return states, contexts


def one_layer_loss(contexts: list[np.ndarray], prompts: Prompts, beta: float) -> float:
    """The loss of softmax attention with W_QK = β I and the best multiple of the identity as W_OV, by regression."""
    estimates = []
    for context, query in zip(contexts, prompts.query.numpy(), strict=True):
        pattern = np.exp(beta * context @ query)
        estimates.append(pattern @ context / pattern.sum())
    estimate, target = np.array(estimates).ravel(), prompts.target.numpy().ravel()
    (alpha,), *_ = np.linalg.lstsq(estimate[:, None], target, rcond=None)
    return float(((alpha * estimate - target) ** 2).sum() / len(contexts))


@pytest.mark.parametrize("kind", ["softmax", "linear"])
@pytest.mark.parametrize("tied", [False, True])
def test_losses_are_those_of_loops(kind: str, tied: bool) -> None:
    result = train_depth(TASK, 3, kind=kind, tied=tied, settings=SETTINGS, seeds=(3, 4), dtype=torch.float64)
    prompts = sample_test_prompts(TASK, SETTINGS, (3, 4))
    for run in range(2):
        weights = [
            (result.W_QK[run, i].numpy(), result.W_OV[run, i].numpy(), float(result.skip[run, i]), kind)
            for i in range(3)
        ]
        rows = list(zip(prompts.context.numpy(), prompts.query.numpy(), prompts.target.numpy(), strict=True))
        losses = {}
        for still in (None, "context", "query"):
            errors = [[((state - x) ** 2).sum() for state in looped(c, q, weights, still)[0]] for c, q, x in rows]
            losses[still] = np.mean(errors, axis=0)
        np.testing.assert_allclose(result.loss_by_layer[run], losses[None])
        assert float(result.frozen_loss[run]) == pytest.approx(losses["context"][-1])
        assert float(result.held_loss[run]) == pytest.approx(losses["query"][-1])
        contexts = [looped(c, q, weights, None)[1] for c, q, _ in rows]
        for layer in range(3):
            of_layer = [each[layer] for each in contexts]
            least = min(one_layer_loss(of_layer, prompts, beta) for beta in np.geomspace(0.01, 300, 120))
            assert float(result.context_loss[run, layer]) == pytest.approx(least, rel=0.01)
        assert float(result.test_loss[run]) == float(result.loss_by_layer[run, -1])
        same = bool((result.W_QK[run, 0] == result.W_QK[run, 2]).all())
        assert same == tied


def test_a_layer_learns_to_denoise_and_runs_are_apart() -> None:
    task = LinearSubspaces(n=4, d=2)
    settings = TrainingSettings(n_prompts=400, batch_size=40, n_context=30, n_epochs=25, n_test_prompts=400)
    result = train_depth(task, 2, settings=settings, seeds=(0, 1))
    assert float(result.test_loss.max()) < 0.7 * float(result.loss_by_layer[:, 0].min())
    assert float((result.W_QK[0] - result.W_QK[1]).abs().max()) > 1e-3
    alone = train_depth(task, 2, settings=settings, seeds=(0,))
    torch.testing.assert_close(alone.test_loss[0], result.test_loss[0], rtol=1e-3, atol=1e-3)


def test_a_cosine_rises_and_falls_and_the_late_fall_is_that_of_the_curve() -> None:
    settings = replace(SETTINGS, n_epochs=20, schedule="cosine", learning_rate=0.2)  # 40 steps, the first 2 rising
    assert settings.n_steps == 40
    rates = [settings.rate_at(step) for step in range(40)]
    assert rates[:3] == pytest.approx([0.1, 0.2, 0.2]) and rates[21] == pytest.approx(0.1) and 0 < rates[39] < 0.001
    assert replace(settings, schedule="constant").rate_at(39) == 0.2
    result = train_depth(TASK, 1, settings=settings, seeds=(0,))
    curve = result.train_loss[0]
    assert float(result.late_fall[0]) == pytest.approx(1 - float(curve[18:].mean() / curve[16:18].mean()), abs=1e-5)
    # A layer that is no deeper starts where it did before depth scaled it.
    bound = TASK.n**-0.5
    still = train_depth(TASK, 4, settings=replace(SETTINGS, n_epochs=1, learning_rate=1e-12), seeds=(0,))
    assert float(still.W_OV.abs().max()) <= bound / 2 < float(still.W_QK.abs().max()) <= bound


def test_with_a_long_skip_the_query_is_asked_as_given_of_the_moved_context() -> None:
    result = train_depth(TASK, 3, tied=True, long_skip=True, settings=SETTINGS, seeds=(3, 4), dtype=torch.float64)
    prompts = sample_test_prompts(TASK, SETTINGS, (3, 4))
    weights = [(result.W_QK[1, 0].numpy(), result.W_OV[1, 0].numpy(), float(result.skip[1, 0]), "softmax")] * 3
    rows = zip(prompts.context.numpy(), prompts.query.numpy(), prompts.target.numpy(), strict=True)
    errors = [((looped(c, q, weights, "query")[0][-1] - x) ** 2).sum() for c, q, x in rows]
    assert float(result.test_loss[1]) == float(result.held_loss[1]) == pytest.approx(np.mean(errors))
    assert float(result.loss_by_layer[1, 0]) == float(result.loss_by_layer[1, 2])
    assert result.headline.startswith("3 layers, tied, long skip: ")


def test_noisy_contexts_have_the_querys_noise() -> None:
    task = GaussianMixtures(n=4, n_components=3, noise_variance=0.5)
    clean, noisy = (train_depth(task, 2, noisy_context=on, settings=SETTINGS, seeds=(0,)) for on in (False, True))
    assert float(noisy.context_loss[0, 0]) > float(clean.context_loss[0, 0])  # a worse prior
    assert float(noisy.loss_by_layer[0, 0]) == float(clean.loss_by_layer[0, 0])  # the same queries
    prompts = task.sample(300, 200, seed=1)
    noise = with_noise(prompts, task, 5).context - prompts.context
    assert float(noise.var()) == pytest.approx(0.5, rel=0.02) and abs(float(noise.mean())) < 0.01
    assert torch.equal(with_noise(prompts, task, 5).context, prompts.context + noise)
