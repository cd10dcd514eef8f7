"""Stored trainings: the bundled ones are what training gives and what the paper says, and files are checked."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from aotlens.denoise import TASKS, stored
from aotlens.denoise.one_layer import attend
from aotlens.denoise.stored import (
    BUNDLED,
    DenoiserTraining,
    bundled_path,
    compare_with_bayes,
    random_transform,
)
from aotlens.denoise.tasks import GaussianMixtures
from aotlens.denoise.training import TrainingSettings, sample_test_prompts, train_layers

TINY = TrainingSettings(n_prompts=20, batch_size=10, n_context=12, n_epochs=3, n_test_prompts=16)


@pytest.fixture(scope="module")
def training() -> DenoiserTraining:
    transform = random_transform(4, seed=3)
    layers = train_layers(GaussianMixtures(n=4), "softmax", TINY, seeds=(5, 1), transform=transform)
    return compare_with_bayes(layers, command="by hand")


@pytest.mark.parametrize("key", BUNDLED, ids=lambda key: bundled_path(*key).stem)
def test_a_bundled_training_has_the_loss_of_its_matrices(key) -> None:
    task, attention, transformed = key
    training = stored(task, attention, transformed=transformed)
    layers = training.layers
    assert layers.task == TASKS[task] and layers.kind == attention and layers.settings == BUNDLED[key]
    assert len(layers.seeds) == 6 and not layers.stuck.any()
    assert (layers.transform is not None) == transformed
    prompts = sample_test_prompts(layers.task, layers.settings, layers.seeds, transform=layers.transform)
    for run in range(6):
        estimate = attend(
            prompts.context, prompts.query, layers.W_QK[run].double(), layers.W_OV[run].double(), attention
        )
        loss = float((estimate - prompts.target).pow(2).sum(-1).mean())
        assert float(layers.test_loss[run, -1]) == pytest.approx(loss, rel=1e-4)
    assert float(layers.test_loss.min()) > training.baselines["Bayes"]
    assert float(layers.test_loss[:, -1].max()) < training.baselines["zero"]
    assert training.baselines["Bayes"] == pytest.approx(training.bayes.value, rel=0.1)


def test_the_bundled_trainings_are_small() -> None:
    paths = [bundled_path(*key) for key in BUNDLED]
    assert sum(path.stat().st_size for path in paths) <= 300_000
    assert sorted(paths) == sorted(paths[0].parent.glob("*.safetensors"))


def test_the_papers_scales_over_six_seeds() -> None:
    linear = stored("subspaces", "linear").layers
    assert float((linear.alpha * linear.beta).mean()) == pytest.approx(0.327, abs=0.01)
    softmax = stored("subspaces", "softmax").layers
    assert float((softmax.alpha * softmax.beta).mean()) == pytest.approx(0.194 * 1.607, rel=0.05)
    assert float(stored("mixtures", "softmax").layers.alpha.abs().mean()) == pytest.approx(1, abs=0.1)


def test_baselines_are_those_of_the_task(training) -> None:
    assert set(training.baselines) == {"zero", "best linear", "Bayes"}


def test_baselines_and_scan_are_those_of_prompts_that_were_not_transformed(training) -> None:
    plain = train_layers(GaussianMixtures(n=4), "softmax", TINY, seeds=(5, 1))
    against = compare_with_bayes(plain)
    assert against.baselines == training.baselines and against.optimum == training.optimum
    frame = training.to_frame()
    assert frame.least_test_loss.tolist() == pytest.approx([float(run.min()) for run in training.layers.test_loss])
    assert [float(training.layers.test_loss[0, frame.epochs_to_least[0]])] == pytest.approx([frame.least_test_loss[0]])


def test_scales_of_transformed_prompts_are_those_of_the_layer_that_undoes_the_transform(training) -> None:
    matrix = training.layers.transform
    W_KQ, W_PV = 0.3 * torch.linalg.inv(matrix @ matrix.T), 1.4 * torch.linalg.inv(matrix)
    undone = dataclasses.replace(training.layers, W_QK=W_KQ.T.repeat(2, 1, 1), W_OV=W_PV.T.repeat(2, 1, 1))
    assert undone.alpha.tolist() == pytest.approx([1.4] * 2) and undone.beta.tolist() == pytest.approx([0.3] * 2)
    assert float(undone.off_diagonal.max()) < 1e-12 and not undone.stuck.any()


def test_the_transform_is_well_conditioned_and_drawn_by_seed() -> None:
    matrix = random_transform(16)
    assert float(torch.linalg.cond(matrix)) == pytest.approx(4)
    assert torch.equal(matrix, random_transform(16)) and not torch.equal(matrix, random_transform(16, seed=1))
