"""Snapshots of a run: those of a run stopped at that step, bit for bit, whatever kills it."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import aotlens
from aotlens.checkpoints import snapshots
from aotlens.checkpoints.snapshots import SnapshotWriter, read_snapshot, snapshot_file, snapshot_steps
from aotlens.cli import main
from aotlens.train import Recipe, TrainingData, TrainingError, load_recipe, train
from aotlens.train.state import log_steps, loss_has_fallen, planned_steps
from tests.messages import refused

from .agents import assert_same_weights
from .conftest import N_STEPS

STEPS = (0, 1, 2, 3, 5, 7, 8, 10, 12, 14, 17, 20, 21, 25, 30)


@pytest.fixture(scope="module")
def recipe(recipe_path: Path) -> Recipe:
    return dataclasses.replace(load_recipe(recipe_path), snapshots=STEPS)


@pytest.fixture(scope="module")
def run_folder(recipe: Recipe, data: TrainingData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(recipe, data, tmp_path_factory.mktemp("film") / "tiny", device="cpu")


@pytest.mark.long
def test_a_snapshot_is_a_run_stopped_at_that_step(
    recipe: Recipe, run_folder: Path, data: TrainingData, tmp_path: Path
) -> None:
    run = aotlens.load_run(run_folder, device="cpu")
    assert run.steps == STEPS and run.name == "tiny"
    assert [run.tokens(step) for step in (0, 7)] == [0, 7 * 8 * 32]
    without = dataclasses.replace(recipe, snapshots=None)
    for step in (1, 7, 14, 25):
        train(without, data, tmp_path / f"{step}", device="cpu", stop_after_steps=step)
        stopped = aotlens.load(tmp_path / f"{step}", device="cpu").state_dict()
        kept = run[step].state_dict()
        assert stopped.keys() == kept.keys() and all(torch.equal(stopped[name], kept[name]) for name in stopped), step
    end, finished = run[N_STEPS], aotlens.load(run_folder, device="cpu")
    assert all(torch.equal(a, b) for a, b in zip(end.parameters(), finished.parameters(), strict=True))
    assert not torch.equal(run[0].W_E, run[1].W_E)
    assert run.at(7 * 256 + 255).card.name == "tiny@7" and run.at(0).card.tokens_seen == 0
    with refused("tiny@4", "15 steps", "3, 5"):
        run[4]


def test_a_name_with_a_step_is_a_checkpoint(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info = aotlens.checkpoints.find_checkpoint("tiny@7", [run_folder])
    model = aotlens.load("tiny@7", "cpu", folders=[run_folder])
    assert info.name == model.card.name == "tiny@7" and info.weights_sha256 == model.card.weights_sha256
    assert (
        "after 7 updates" in info.card
        and info.metrics == {}
        and info.tokens_seen == 7 * 256
        and model.tokenizer is not None
    )
    assert aotlens.checkpoints.verify(info.path) == []
    assert info.weights_sha256 != aotlens.checkpoints.find_checkpoint("tiny", [run_folder]).weights_sha256
    with pytest.raises(SystemExit) as ended:
        main(["motifs", f"{run_folder}@7", "--half-length", "5"])
    assert not ended.value.code and "previous token" in capsys.readouterr().out.replace("_", " ")
    bare = shutil.copytree(run_folder, tmp_path / "bare")
    for name, words in (
        ("tiny@6", ["5, 7"]),
        ("bare@6", ["found none", "snapshots ="]),
        ("tony@6", ["tony"]),
    ):
        with refused(*words):
            aotlens.load(name, "cpu", folders=[run_folder, bare])


def test_a_snapshot_is_exported_as_a_checkpoint(run_folder: Path, tmp_path: Path) -> None:
    at_step = run_folder.with_name("tiny@7")
    archive = aotlens.checkpoints.export_checkpoint(at_step, tmp_path / "seven.tar")
    info = aotlens.checkpoints.import_checkpoint(archive, into=tmp_path)
    assert info.name == "tiny-7" and info.tokens_seen == 7 * 256
    assert_same_weights(at_step, tmp_path / "tiny-7")


def test_differences_are_exact_and_smaller(tmp_path: Path) -> None:
    """Weights that move a little take less; special values and other types come back as they are."""
    generator = torch.Generator().manual_seed(0)
    state = {
        "w": torch.randn(300, 400, generator=generator),
        "odd": torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 1e-45, -3e38, 1.0]),
        "half": torch.randn(50, generator=generator).bfloat16(),
        "double": torch.randn(50, generator=generator).double(),
        "counts": torch.arange(7),
    }
    writer, kept = SnapshotWriter(tmp_path / "m", 0), []
    for step in range(23):
        kept.append({name: tensor.clone() for name, tensor in state.items()})
        writer.add(step, step, state)
        moved = state["w"] * (1 + 0.001 * torch.randn(300, 400, generator=generator))
        state = {**state, "w": moved, "odd": state["odd"].flip(0), "counts": state["counts"] - 2**62,
                 "half": -state["half"], "double": state["double"] + 1}  # fmt: skip
        if step == 12:
            writer = SnapshotWriter(tmp_path / "m", 12)  # as a resumed run does
    for step, expected in enumerate(kept):
        found = read_snapshot(tmp_path / "m", step).tensors
        for name, tensor in expected.items():
            assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
            assert (
                found[name].numpy().tobytes() == tensor.numpy().tobytes()
                if name != "half"
                else torch.equal(found[name].view(torch.int16), tensor.view(torch.int16))
            ), (step, name)
    sizes = [snapshot_file(tmp_path / "m", step).stat().st_size for step in range(23)]
    whole = [step for step, size in enumerate(sizes) if size > 4 * 300 * 400]
    assert whole == [0, 10, 20], "every tenth is whole, whoever wrote the others"
    assert max(size for step, size in enumerate(sizes) if step not in whole) < 0.75 * sizes[0]


def test_what_is_damaged_is_refused(run_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "tiny"
    shutil.copytree(run_folder, copy)
    shutil.copytree(snapshots.snapshots_folder(run_folder), snapshots.snapshots_folder(copy))
    path = snapshot_file(copy, 3)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    for step in (3, 5):  # what differs from it is lost with it, what stands before it is not
        with refused("step-000000003", "damaged", "train the run"):
            aotlens.load(copy.with_name(f"tiny@{step}"), "cpu")
    assert aotlens.load(copy.with_name("tiny@2"), "cpu").card.tokens_seen == 512
    path.unlink()
    with refused("step-000000003", "expected a snapshot"):
        aotlens.load(copy.with_name("tiny@5"), "cpu")
    with refused("tiny@4", "nearest"):
        aotlens.load(copy.with_name("tiny@4"), "cpu")


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from aotlens.train import load_recipe, prepare, train
import aotlens.checkpoints.snapshots as snapshots, dataclasses
out, recipe_path, corpus, home = map(Path, (sys.argv[1], *sys.argv[2:]))
recipe = dataclasses.replace(load_recipe(sys.argv[2]), snapshots={steps})
data = prepare(recipe.corpus, sys.argv[3], home=Path(sys.argv[4]))
replace, fsync = os.replace, os.fsync
for moment in range(1, 21):
    child = os.fork()
    if child == 0:
        left = [1 + (moment - 1) * 3 // 2]
        def dies(function, before):
            def call(*arguments):
                left[0] -= 1
                if left[0] == 0 and before: os.kill(os.getpid(), signal.SIGKILL)
                function(*arguments)
                if left[0] == 0: os.kill(os.getpid(), signal.SIGKILL)
            return call
        os.replace, os.fsync = dies(replace, moment % 2), dies(lambda descriptor: None, moment % 2)
        target = out / str(moment)
        train(recipe, data, target, device="cpu", stop_after_steps=7)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL, moment
    target = out / str(moment)
    for step in snapshots.snapshot_steps(target): snapshots.read_snapshot(target, step)
    train(recipe, data, target, device="cpu", resume=True, stop_after_steps=7)
    assert not [*snapshots.snapshots_folder(target).glob(".*")], "nothing unfinished is left"
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="forks; run it on Linux or macOS")
def test_killed_at_twenty_moments_and_resumed(
    recipe_path: Path, corpus: str, home: Path, run_folder: Path, tmp_path: Path
) -> None:
    code = KILLED.replace("{steps}", repr((0, 1, 2, 4, 6)))
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(recipe_path), corpus, str(home)],
        env=os.environ | {"AOTLENS_HOME": str(home), "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first = {step: read_snapshot(tmp_path / "1", step).tensors for step in (0, 1, 2, 4, 6)}
    for moment in range(1, 21):
        assert snapshot_steps(tmp_path / str(moment)) == [0, 1, 2, 4, 6]
        for step, tensors in first.items():
            again = read_snapshot(tmp_path / str(moment), step).tensors
            assert all(torch.equal(tensors[name], again[name]) for name in tensors), (moment, step)


def test_a_resumed_run_drops_what_came_after_its_state(
    recipe: Recipe, data: TrainingData, run_folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "tiny"
    train(recipe, data, out, device="cpu", stop_after_steps=12)
    stale = snapshot_file(out, 25)
    shutil.copy(snapshot_file(run_folder, 25), stale)
    with pytest.raises(TrainingError, match="exists already"):
        train(recipe, data, out, device="cpu")
    train(recipe, data, out, device="cpu", resume=True)
    for step in STEPS:
        assert all(
            torch.equal(tensor, read_snapshot(run_folder, step).tensors[name])
            for name, tensor in read_snapshot(out, step).tensors.items()
        )
    shutil.rmtree(out)
    with pytest.raises(TrainingError, match=r"tiny\.snapshots exists already"):
        train(recipe, data, out, device="cpu")


@pytest.mark.parametrize(("number", "n_steps"), [(60, 1000), (60, 59), (60, 60), (4, 10**6), (60, 12_345), (7, 3)])
def test_log_steps_are_even_in_log_step(number: int, n_steps: int) -> None:
    steps = log_steps(number, n_steps)
    assert len(steps) == min(number, n_steps + 1) and steps[0] == 0 and steps[-1] == n_steps
    assert steps == sorted({*steps})
    large = np.array([step for step in steps if step > 100], dtype=float)
    if len(large) > 3:
        assert np.ptp(np.diff(np.log(large))) < 0.05


def test_the_loss_decides_when_it_falls_fast() -> None:
    """Of 20 snapshots half are planned; the others come where the loss falls, and never more than half."""
    assert planned_steps("loss:20", 1000) == {*log_steps(10, 1000)}
    losses = np.concatenate([np.full(100, 8.0), np.linspace(8, 4, 100), np.full(800, 4.0)])
    fall: dict[str, float] = {}
    kept = [step for step, loss in enumerate(losses) if loss_has_fallen("loss:20", fall, float(loss))]
    assert len(kept) == 4 and all(100 <= step <= 260 for step in kept)
    fall = {}
    wild = np.abs(np.random.default_rng(0).normal(0, 8, 2000))
    assert sum(loss_has_fallen("loss:20", fall, float(loss)) for loss in [8.0, *wild]) <= 10
    assert not loss_has_fallen("log:20", {}, 1.0)


@pytest.mark.parametrize("rule", ["log:x", "linear:60", "log:2", [3, 2], [0, 31], [1, 1], [-1], []])
def test_rules_that_mean_nothing_are_refused(rule: str | list[int], recipe_path: Path) -> None:
    values = {**load_recipe(recipe_path).to_dict(), "snapshots": rule}
    with refused("snapshots", "log:60"):
        Recipe.from_dict(values)
    with refused("snapshots", "True"):
        Recipe.from_dict(values | {"snapshots": [True]})


def test_others_folders_by_step(run_folder: Path, tmp_path: Path) -> None:
    for step, name in ((1, "step1"), (12, "checkpoint-12"), (5, "step_5")):
        shutil.copytree(run_folder, tmp_path / name)
        assert step
    (tmp_path / "logs").mkdir()
    run = aotlens.load_run(tmp_path, device="cpu")
    assert run.steps == (1, 5, 12) and run[12].card.name == "checkpoint-12"
    with refused("says no tokens"):
        run.at(10)
    with refused("(1, 5, 12)", "got 2"):
        run[2]
    with refused("found none", "snapshots ="):
        aotlens.load_run(shutil.copytree(run_folder, tmp_path / "elsewhere" / "bare"))
