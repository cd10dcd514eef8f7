"""Training: killed and resumed, on two processes, and through everything that can go wrong; its progress bar."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

import aotlens
from aotlens.checkpoints import verify
from aotlens.cli import main
from aotlens.data import validation_windows
from aotlens.evaluate import BigramModel, validation_loss
from aotlens.train import TrainingData, TrainingError, load_recipe, loop, prepare, run_recipe, train
from aotlens.train.run import _Bar
from tests.messages import refused, says

from .agents import assert_same_weights
from .conftest import N_STEPS


def _command(recipe_path: Path, corpus: str, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "aotlens", "train", str(recipe_path), "--corpus", corpus, "--out", str(out),
            "--device", "cpu", *more]  # fmt: skip


def _environment(home: Path) -> dict[str, str]:
    return os.environ | {"AOTLENS_HOME": str(home), "OMP_NUM_THREADS": "1"}


@contextmanager
def one_thread() -> Iterator[None]:
    """As in the subprocesses: a sum's order depends on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def unbroken(recipe_path: Path, data: TrainingData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with one_thread():
        return train(load_recipe(recipe_path), data, tmp_path_factory.mktemp("run") / "tiny", device="cpu")


def test_a_run_learns_and_says_what_it_did(unbroken: Path, data: TrainingData) -> None:
    card = aotlens.load(unbroken, device="cpu").card
    history = card.history()
    assert [line["step"] for line in history] == list(range(1, N_STEPS + 1))
    assert history[-1]["tokens"] == card.tokens_seen == N_STEPS * 8 * 32
    assert history[-1]["loss"] < history[0]["loss"] - 0.2
    assert {"validation_loss", "induction", "previous_token"} <= set(history[-1])
    bigram = BigramModel.fit(np.asarray(data.train.tokens), 280)
    windows = validation_windows(data.validation, 32).numpy()
    pairs = [bigram.loss(np.array(pair)) for window in windows for pair in itertools.pairwise(window)]
    assert card.metrics["bigram_loss"] == pytest.approx(np.mean(pairs))  # of what the model itself predicts
    assert len(pairs) == card.metrics["validation_tokens"]
    assert card.corpus["validation"] == ["c"] and card.seed == 5
    assert verify(unbroken) == []
    assert not (unbroken.parent / "tiny.training").exists()


@pytest.mark.slow
def test_killed_and_resumed_a_run_ends_with_the_same_weights(
    recipe_path: Path,
    corpus: str,
    home: Path,
    data: TrainingData,
    unbroken: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "tiny"
    arguments = _command(recipe_path, corpus, out)[2:]
    saved = (out.with_name("tiny.training") / "state.safetensors", out / "config.json")
    # Once it has saved it makes no further step, so that it can't end before it is killed.
    waiting = (
        "import os, sys, time, aotlens.train.loop as loop\n"
        "update = loop._update\n"
        f"saved = {list(map(str, saved))}\n"
        "def waits(*args):\n"
        "    while all(map(os.path.exists, saved)): time.sleep(0.1)\n"
        "    return update(*args)\n"
        "loop._update = waits\n"
        "from aotlens.cli import main; sys.argv = sys.argv[1:]; sys.exit(main())"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", waiting, *arguments], env=_environment(home), stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 200
    while not all(path.exists() for path in saved) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run ended before it could be killed"
    assert aotlens.load(out, device="cpu").card.tokens_seen < N_STEPS * 256

    monkeypatch.setenv("AOTLENS_HOME", str(home))
    with pytest.raises(SystemExit) as ended, one_thread():
        main([*arguments[1:], "--resume"])
    assert not ended.value.code
    assert_same_weights(unbroken, out)


@pytest.mark.minutes
def test_two_processes_train_as_one(corpus: str, home: Path, data: TrainingData, tmp_path: Path) -> None:
    """With whole rows, and with passes of one row whose gradients add up."""
    text = (Path(__file__).parent / "conftest.py").read_text().split('"""')[3]  # the recipe, with 50 steps
    path = tmp_path / "fifty.toml"
    path.write_text(text.replace("tokens = 5120", "tokens = 10240"))
    losses = []
    for processes, more in ((1, ()), (2, ()), (2, ("--rows-at-once", "1"))):
        out = tmp_path / f"run-{len(losses)}"
        prefix = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes), "--master_port",
                  "0", "--rdzv_backend", "c10d", "--rdzv_endpoint", "127.0.0.1:0"]  # fmt: skip
        command = _command(path, corpus, out)[1:]
        done = subprocess.run([*prefix, *command, *more], env=_environment(home), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        lines = (out / "metrics.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["loss"] for line in lines])
    assert len(losses[0]) == 50
    for other in losses[1:]:
        torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(other), rtol=0, atol=1e-5)


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_checkpoint(
    recipe_path: Path, data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update, calls = loop._update, []

    def failing(*args: object) -> torch.Tensor:
        calls.append(None)
        loss = update(*args)
        return loss * torch.nan if len(calls) == 7 else loss

    monkeypatch.setattr(loop, "_update", failing)
    with refused("step 7", "learning_rate", error=TrainingError):
        train(load_recipe(recipe_path), data, tmp_path / "tiny", device="cpu")
    assert aotlens.load(tmp_path / "tiny", device="cpu").card.tokens_seen == 4 * 256
    assert verify(tmp_path / "tiny") == []


def test_a_full_disk_is_named_and_leaves_the_last_state_whole(
    recipe_path: Path, data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, out = load_recipe(recipe_path), tmp_path / "tiny"
    train(recipe, data, out, device="cpu", stop_after_steps=4)
    saved = (tmp_path / "tiny.training" / "state.safetensors").read_bytes()

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("aotlens.files.os.replace", full)
    with refused("No space left", "--resume"):
        train(recipe, data, out, device="cpu", resume=True)
    assert (tmp_path / "tiny.training" / "state.safetensors").read_bytes() == saved
    assert sorted(p.name for p in (tmp_path / "tiny.training").iterdir()) == ["state.safetensors"]
    assert verify(out) == []


def test_what_exists_is_not_overwritten(recipe_path: Path, data: TrainingData, unbroken: Path) -> None:
    with pytest.raises(TrainingError, match=r"exists already; .*--resume"):
        train(load_recipe(recipe_path), data, unbroken, device="cpu")
    with pytest.raises(TrainingError, match="is finished"):
        train(load_recipe(recipe_path), data, unbroken, device="cpu", resume=True)


def test_another_models_state_is_refused(recipe_path: Path, data: TrainingData, tmp_path: Path) -> None:
    recipe = load_recipe(recipe_path)
    train(recipe, data, tmp_path / "tiny", device="cpu", stop_after_steps=1)
    path = tmp_path / "wider.toml"
    path.write_text(recipe_path.read_text().replace("d_model = 16", "d_model = 24"))
    with refused("another model"):
        train(load_recipe(path), data, tmp_path / "tiny", device="cpu", resume=True)
    with refused("another seed, stages"):
        other = dataclasses.replace(recipe, seed=99, stages=recipe.stages[:1])
        train(other, data, tmp_path / "tiny", device="cpu", resume=True)


def test_killed_between_state_and_checkpoint_a_run_still_resumes(
    recipe_path: Path, data: TrainingData, unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(Exception):
        pass

    recipe, out = load_recipe(recipe_path), tmp_path / "tiny"
    save = loop.save_checkpoint

    def killed(folder: Path, *args: object, **kwargs: object) -> None:
        if folder == out:
            raise KilledError
        save(folder, *args, **kwargs)

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(loop, "save_checkpoint", killed)
        train(recipe, data, out, device="cpu")
    assert (tmp_path / "tiny.training" / "state.safetensors").exists()
    train(recipe, data, out, device="cpu", resume=True)
    assert aotlens.load(out, device="cpu").card.tokens_seen == N_STEPS * 256


def test_a_gradient_that_is_not_finite_stops_the_run_too(
    recipe_path: Path, data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip, calls = torch.nn.utils.clip_grad_norm_, []

    def spoiled(parameters: object, norm: float) -> torch.Tensor:
        calls.append(None)
        return clip(parameters, norm) * (torch.inf if len(calls) == 6 else 1.0)

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", spoiled)
    with refused("gradient", "step 6", error=TrainingError):
        train(load_recipe(recipe_path), data, tmp_path / "tiny", device="cpu")


def test_stored_in_bf16_the_metrics_are_those_of_the_stored_weights(
    recipe_path: Path, data: TrainingData, tmp_path: Path
) -> None:
    recipe = load_recipe(recipe_path)
    random = {**recipe.model, "phi": "fixed", "fixed_pattern": "random"}  # a buffer beside the parameters
    recipe = dataclasses.replace(recipe, weights_dtype="bfloat16", model=random)
    model = aotlens.load(train(recipe, data, tmp_path / "tiny", device="cpu"), device="cpu")
    again = validation_loss(model, validation_windows(data.validation, 32))
    assert again == pytest.approx(model.card.metrics["validation_loss"], abs=1e-9)


def test_a_recipe_without_a_corpus_says_where_to_get_one() -> None:
    with pytest.raises(ValueError, match=r"--corpus dir:PATH.*computationalstylistics"):
        prepare(load_recipe("novels-1l-mhsa").corpus)


@pytest.mark.parametrize(
    ("option", "message"),
    [({"tokens": 0}, "tokens=0"), ({"learning_rate": 0.0}, "learning_rate=0.0"), ({"corpus": ""}, "corpus")],
)
def test_zero_is_refused_and_not_taken_for_the_recipes_own(
    recipe_path: Path, corpus: str, tmp_path: Path, option: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run_recipe(str(recipe_path), **({"corpus": corpus, "out": tmp_path / "out", "device": "cpu"} | option))
    assert not (tmp_path / "out").exists()


def test_too_little_text_is_named(recipe_path: Path, tmp_path: Path, home: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text("Too short.")
    with pytest.raises(ValueError, match="280"):
        prepare(load_recipe(recipe_path).corpus, f"dir:{tmp_path}", home=home)


def test_it_says_when_training_is_over_but_measuring_is_not(capsys: pytest.CaptureFixture[str]):
    with _Bar("small", 100, True) as bar:
        bar(50, 100)
        assert "measuring" not in capsys.readouterr().err
        bar.say_loss(0.5)
        bar(100, 100)
    last = capsys.readouterr().err.strip().split("\r")[-1]
    says(last, "small", "held out: 100%", "loss 0.500")
