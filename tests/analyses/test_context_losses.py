"""Losses at inference against the layer itself, prompt by prompt."""

from __future__ import annotations

import pytest
import torch

from analyses._context_losses import losses_by_context
from aotlens.denoise import LinearSubspaces, TrainingSettings, train_layers
from aotlens.denoise.one_layer import attend
from aotlens.denoise.stored import random_transform
from tests.messages import refused

SETTINGS = TrainingSettings(n_prompts=20, batch_size=10, n_context=12, n_epochs=2, n_test_prompts=6)


@pytest.mark.parametrize("kind", ["linear", "softmax"])
def test_losses_are_those_of_the_beginnings_of_contexts(kind: str) -> None:
    layers = train_layers(LinearSubspaces(n=5, d=2), kind, SETTINGS, seeds=(0, 1))
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
    frame = result.to_frame()
    assert len(frame) == 4 and (frame.least <= frame.loss).all() and (frame.loss <= frame.largest).all()


def test_what_does_not_fit_is_refused() -> None:
    task = LinearSubspaces(n=5, d=2)
    layers = train_layers(task, "linear", SETTINGS, seeds=(0,))
    with refused("context length"):
        losses_by_context(layers, [])
    with pytest.raises(ValueError, match="n=5 dimensions"):
        losses_by_context(layers, [3], tasks={"other": LinearSubspaces(n=6, d=2)})
    turned = train_layers(task, "linear", SETTINGS, seeds=(0,), transform=random_transform(5))
    with pytest.raises(ValueError, match="transformed"):
        losses_by_context(turned, [3])
