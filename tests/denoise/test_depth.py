"""Several layers against loops over tokens; the first is the paper's layer, and tied layers are one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.denoise import GaussianMixtures, LinearSubspaces, TrainingSettings, train_depth
from aotlens.denoise.training import sample_test_prompts

SETTINGS = TrainingSettings(n_prompts=40, batch_size=20, n_context=9, n_epochs=3, n_test_prompts=6)
TASK = GaussianMixtures(n=4, n_components=3)


def looped(context: np.ndarray, query: np.ndarray, weights: list[tuple], frozen: bool) -> list[np.ndarray]:
    """The query's states, token by token."""
    states = [query]
    for W_QK, W_OV, skip, kind in weights:
        moved = []
        for token in (*context, states[-1]):
            scores = context @ (W_QK.T @ token)
            pattern = scores / len(scores) if kind == "linear" else np.exp(scores) / np.exp(scores).sum()
            moved.append(skip * token + pattern @ context @ W_OV)
        states.append(moved[-1])
        if not frozen:
            context = np.array(moved[:-1])
    return states


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
        for frozen in (False, True):
            errors = [
                [((state - x.numpy()) ** 2).sum() for state in looped(c.numpy(), q.numpy(), weights, frozen)]
                for c, q, x in zip(prompts.context, prompts.query, prompts.target, strict=True)
            ]
            expected = np.mean(errors, axis=0)
            if frozen:
                assert float(result.frozen_loss[run]) == pytest.approx(expected[-1])
            else:
                np.testing.assert_allclose(result.loss_by_layer[run], expected)
        assert float(result.test_loss[run]) == float(result.loss_by_layer[run, -1])
        same = bool((result.W_QK[run, 0] == result.W_QK[run, 2]).all())
        assert same == tied
    assert len(result.to_frame()) == 6 and ("tied" in result.headline) == tied


def test_a_layer_learns_to_denoise_and_runs_are_apart() -> None:
    task = LinearSubspaces(n=4, d=2)
    settings = TrainingSettings(n_prompts=400, batch_size=40, n_context=30, n_epochs=25, n_test_prompts=400)
    result = train_depth(task, 2, settings=settings, seeds=(0, 1))
    assert float(result.test_loss.max()) < 0.7 * float(result.loss_by_layer[:, 0].min())
    assert float((result.W_QK[0] - result.W_QK[1]).abs().max()) > 1e-3
    alone = train_depth(task, 2, settings=settings, seeds=(0,))
    torch.testing.assert_close(alone.test_loss[0], result.test_loss[0], rtol=1e-3, atol=1e-3)


def test_what_cannot_be_trained_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 layer"):
        train_depth(TASK, 0)
    with pytest.raises(ValueError, match="'linear', 'softmax'"):
        train_depth(TASK, 1, kind="hardmax")
