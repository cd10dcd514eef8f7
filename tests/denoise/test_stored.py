"""Stored trainings and audits: the bundled ones can be measured again and are the paper's, and files are checked."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import aotlens
from aotlens.checkpoints import CheckpointInfo, find_checkpoint
from aotlens.denoise import (
    TASKS,
    AuditRecord,
    TrainingSettings,
    audit,
    found_scales,
    landscape_around,
    named_training,
    run_matrices,
    stored,
    stored_audit,
    train_and_keep,
    train_layers,
    trainings,
)
from aotlens.denoise.one_layer import attend
from aotlens.denoise.stored import (
    BEST,
    BUNDLED,
    DenoiserTraining,
    bundled_name,
    compare_with_bayes,
    kept_name,
    random_transform,
)
from aotlens.denoise.tasks import GaussianMixtures
from aotlens.denoise.training import sample_test_prompts
from aotlens.results import find_stored, save_stored, stored_path
from aotlens.results import stored as stored_result
from aotlens.results.stored_files import stored_folder
from tests.messages import refused
from tests.small_models import SMALL, maker
from tests.stored_results import store_in

TINY = TrainingSettings(n_prompts=20, batch_size=10, n_context=12, n_epochs=3, n_test_prompts=16)


@pytest.fixture(scope="module")
def training() -> DenoiserTraining:
    transform = random_transform(4, seed=3)
    layers = train_layers(GaussianMixtures(n=4), "softmax", TINY, seeds=(5, 1), transform=transform)
    return compare_with_bayes(layers, command="by hand")


@pytest.mark.parametrize("key", BUNDLED, ids=lambda key: bundled_name(*key))
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
    paths = [stored_path("denoiser", bundled_name(*key)) for key in BUNDLED]
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


AUDITED = (
    "code-2l-mhsa",
    "novels-12l-mssa",
    "novels-1l-mhsa",
    "novels-2l-gpt",
    "novels-2l-mhsa",
    "novels-4l-masked",
    "novels-6l-mhsa",
)

real_folder = pytest.mark.usefixtures("real_bundled_folder")


@pytest.fixture(scope="module")
def record() -> AuditRecord:
    tokens = torch.randint(11, (4, 8), generator=torch.Generator().manual_seed(1))
    return AuditRecord(
        audit=audit(maker({**SMALL, "d_head": 3})(), tokens, n_draws=2, seed=4),
        checkpoint="small",
        weights_sha256="0" * 64,
        tokens=tokens,
        corpus="made up",
        documents=("one", "two"),
        seed=4,
        command="by hand",
    )


@real_folder
@pytest.mark.parametrize("name", AUDITED)
def test_a_bundled_audit_is_of_its_checkpoint_and_of_held_out_text(name: str) -> None:
    stored, info = stored_audit(name), find_checkpoint(name)
    assert stored.checkpoint == name and stored.belongs_to(info)
    assert set(stored.documents) <= set(info.held_out(stored.documents)) and stored.documents
    assert stored.audit.snr.shape[2:] == (info.model["n_layers"], info.model["n_heads"])
    assert len(stored.audit.null_snr) == 20 and stored.audit.n_tokens == stored.tokens[:, 1:].numel() >= 2000
    assert stored.command.startswith(f"aotlens audit {name} --corpus ")
    assert len(stored.audit.to_frame()) == 3 * info.model["n_layers"]


@real_folder
@pytest.mark.parametrize("name", ["novels-1l-mhsa", "novels-2l-gpt"])
def test_a_bundled_audit_is_what_the_audit_measures_on_its_windows(name: str) -> None:
    stored = stored_audit(name)
    again = audit(aotlens.load(name, device="cpu"), stored.tokens, n_draws=1, seed=stored.seed)
    # A token on the edge between two heads may fall to the other on another processor.
    for measured, expected in (
        (again.snr, stored.audit.snr),
        (again.null_snr[0], stored.audit.null_snr[0]),
        (again.rotated_snr[0], stored.audit.rotated_snr[0]),
        (again.pca_snr, stored.audit.pca_snr),
        (again.pca_null_snr[0], stored.audit.pca_null_snr[0]),
    ):
        torch.testing.assert_close(measured, expected, rtol=5e-3, atol=0, equal_nan=True)
    assert int((again.sizes - stored.audit.sizes).abs().max()) <= 4
    assert again.matrix == stored.audit.matrix and again.predicted_rate == stored.audit.predicted_rate


@real_folder
def test_the_bundled_audits_are_small_and_listed() -> None:
    paths = sorted(stored_folder("audit").iterdir())
    assert sum(path.stat().st_size for path in paths) <= 300_000
    assert tuple(path.name.removesuffix(".safetensors") for path in paths) == AUDITED
    with refused("'mine'", "code-2l-mhsa, novels-12l"):
        stored_audit("mine")


def test_a_stored_audit_comes_back_for_its_weights_alone(record: AuditRecord, tmp_path: Path, monkeypatch) -> None:
    store_in("audit", tmp_path, monkeypatch)
    save_stored("audit", "small", record)
    again = stored_audit("small")
    assert (again.documents, again.command, again.seed) == (record.documents, record.command, 4)
    torch.testing.assert_close(again.audit.null_snr, record.audit.null_snr, rtol=1e-6, atol=0, equal_nan=True)
    info = CheckpointInfo(name="small", weights_sha256="0" * 64)
    other = dataclasses.replace(info, weights_sha256="1" * 64)
    assert find_stored("audit", info) is again and find_stored("audit", other) is None
    assert find_stored("audit", dataclasses.replace(info, name="none")) is None
    with refused("small", "had before", "denoise.audit"):
        stored_result("audit", "small", other)
