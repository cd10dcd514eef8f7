"""Trainings by name, and what their runs found."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from aotlens.denoise import (
    TASKS,
    TrainingSettings,
    found_scales,
    landscape_around,
    named_training,
    run_matrices,
    stored,
    train_and_keep,
    train_layers,
    trainings,
)
from aotlens.denoise.stored import BEST, kept_name
from tests.messages import refused


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTLENS_HOME", str(tmp_path))
    return tmp_path


def test_bundled_ones_come_first_and_then_ones_own(home):
    first = list(trainings())
    assert first[0] == "subspaces-linear" and len(first) == 8
    (home / "denoisers").mkdir()
    stored("spheres", "linear").save(home / "denoisers" / "mine.safetensors")
    assert list(trainings()) == [*first, "mine"]
    np.testing.assert_array_equal(named_training("mine").layers.W_QK, stored("spheres", "linear").layers.W_QK)


def test_what_is_not_there_or_broken_is_said_without_its_folder(home):
    with refused("No training is called 'x'", "subspaces-linear"):
        named_training("x")
    (home / "denoisers").mkdir()
    (home / "denoisers" / "broken.safetensors").write_bytes(b"none")
    with refused("The training broken can't be read", "broken.safetensors") as said:
        named_training("broken")
    assert str(home) not in str(said.value)


def test_a_new_training_is_kept_and_not_repeated(home):
    new = {"epochs": 2, "rate": 0.01, "context": 12, "prompts": 50, "runs": 2}
    counted: list[tuple[int, int]] = []
    training = train_and_keep("spheres", "linear", **new, progress=lambda done, total: counted.append((done, total)))
    settings = TrainingSettings(n_prompts=50, batch_size=50, n_context=12, n_epochs=2, n_test_prompts=50)
    expected = train_layers(TASKS["spheres"], "linear", settings, seeds=range(2))
    np.testing.assert_allclose(training.layers.test_loss, expected.test_loss, rtol=1e-6)
    name = kept_name("spheres", "linear", **new)
    assert name == "spheres-linear-2-epochs-e29c6c", "files of earlier versions keep their names"
    assert list(trainings())[-1] == name and counted[-1] == (2, 2)
    counted.clear()
    again = train_and_keep("spheres", "linear", **new, progress=lambda *_: counted.append((0, 0)))
    np.testing.assert_array_equal(again.layers.W_QK, training.layers.W_QK)
    assert not counted, "it is loaded"
    with refused("task='torus'", "subspaces"):
        train_and_keep("torus", "linear")


def test_another_training_under_the_same_name_is_not_taken_for_the_asked_one(home):
    new = {"epochs": 1, "context": 10, "prompts": 50, "runs": 1}
    train_and_keep("spheres", "linear", **new, rate=0.01)
    names = [kept_name("spheres", "linear", **new, rate=rate) for rate in (0.01, 0.02)]
    files = [home / "denoisers" / f"{name}.safetensors" for name in names]
    files[0].rename(files[1])
    with refused("another that has its name by chance", files[1].name) as said:
        train_and_keep("spheres", "linear", **new, rate=0.02)
    assert str(home) not in str(said.value)


def test_a_training_that_is_stopped_is_not_kept(home):
    def stop(done: int, total: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        train_and_keep("spheres", "linear", epochs=2, context=12, prompts=50, runs=1, progress=stop)
    assert len(trainings()) == 8


def test_the_matrices_of_a_run_are_its_own():
    training = stored("subspaces", "softmax", transformed=True)
    layers = training.layers
    found = run_matrices(training, layers.seeds[2])
    A = layers.transform.float()
    np.testing.assert_allclose(found.W_QK, A.T @ layers.W_QK[2] @ A, rtol=1e-5)
    frame = found.to_frame()
    assert len(frame) == 32 and set(frame.matrix) == {"W_QK", "W_OV"}
    assert run_matrices(training).seed == layers.seeds[0]
    with refused("seed=77"):
        run_matrices(training, 77)


def test_a_mean_stands_beside_several_runs_and_stuck_ones_are_left_out():
    training = stored("mixtures", "softmax")
    found = found_scales(training)
    layers = training.layers
    kept = [f"seed {seed}" for seed, stuck in zip(layers.seeds, layers.stuck.tolist(), strict=True) if not stuck]
    assert list(found.points) == [BEST, *kept, "mean of the runs"]
    mean = np.mean([found.points[name] for name in kept], axis=0)
    np.testing.assert_allclose(found.points["mean of the runs"], mean)
    np.testing.assert_array_equal(found.landscape.loss, landscape_around(training).loss)
    frame = found.to_frame()
    np.testing.assert_allclose(frame.to_numpy()[:, 1:], found.landscape.loss)
    np.testing.assert_allclose(frame.alpha, found.landscape.alphas)


def test_one_run_has_no_mean():
    training = stored("spheres", "linear")
    layers = training.layers
    first = dataclasses.replace(
        layers, seeds=layers.seeds[:1],
        **{name: getattr(layers, name)[:1] for name in ("W_QK", "W_OV", "train_loss", "test_loss")},
    )  # fmt: skip
    found = found_scales(dataclasses.replace(training, layers=first), landscape_around(training))
    assert list(found.points) == [f"seed {layers.seeds[0]}"]
