"""Sweeps run: each cell in a process of its own, once, and whatever becomes of it the others go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import aotlens
from aotlens.data import RegressionTask, open_corpus
from aotlens.distill import held_out_windows
from aotlens.evaluate import regression_errors, validation_loss
from aotlens.heads import motif_scores
from aotlens.models import AttentionOnlyTransformer
from aotlens.sweeps import Sweep, run_sweep, sweep_status
from aotlens.sweeps.process import _ended, sweep_name
from aotlens.train import run_recipe
from tests.messages import refused
from tests.sweeps.conftest import of

MOTIFS = {"name": "heads.motif_scores", "seeds": [1], "settings": {"n_sequences": 2, "half_length": 5}}
#: A cell that lasts for minutes, so that it is there to be killed.
LONG = {"name": "circuits.composition", "settings": {"n_random": 1_000_000}}


@pytest.mark.long
def test_cells_give_what_the_functions_give_and_are_not_run_again(
    small: AttentionOnlyTransformer, home: Path, monkeypatch: pytest.MonkeyPatch
):
    losses = {"name": "evaluate.validation_loss"}
    wrong = {"name": "heads.ablate_each", "settings": {"inputs": "the cat", "heads": ["7.0"]}}
    data = {"corpus": f"dir:{home / 'text'}", "tokens": 96}
    sweep = Sweep.from_dict(of(MOTIFS, losses, wrong, data=data))
    counted: list[tuple[int, int]] = []
    status = run_sweep(sweep, home / "out", n_jobs=2, progress=lambda done, total: counted.append((done, total)))
    assert (status.done, len(status.failed), status.missing) == (2, 1, 0)
    assert counted == [(done, 3) for done in range(4)]
    (failed,) = status.failed
    assert failed.label["analysis"] == "heads.ablate_each" and "ValueError" in str(failed.error)
    assert "7" in str(failed.error) and "Traceback" in failed.log

    frame = status.to_frame()
    torch.set_num_threads(1)
    rows = frame[(frame.analysis == "heads.motif_scores") & (frame.seed == 1)]
    expected = motif_scores(small, n_sequences=2, half_length=5, seed=1).to_frame()
    for name in expected.columns:
        np.testing.assert_array_equal(rows[name].to_numpy(float), expected[name].to_numpy(float), err_msg=name)
    windows = held_out_windows(small, open_corpus(data["corpus"]), 96)
    (loss,) = frame.loc[frame.analysis == "evaluate.validation_loss", "value"]
    assert loss == validation_loss(small, windows)

    started: list[str] = []

    def counting(job: Any, name: str) -> Any:
        started.append(job.analysis)
        return failed

    monkeypatch.setattr("aotlens.sweeps.running.run_job", counting)
    again = run_sweep(sweep, home / "out")
    assert started == ["heads.ablate_each"]  # what failed is tried again, and nothing else
    pd.testing.assert_frame_equal(again.to_frame(), frame)
    assert sweep_status(home / "out").headline == "2 done, 1 failed, 0 to do"


@pytest.mark.slow
def test_a_killed_cell_is_one_failed_cell(home: Path):
    killed = threading.Event()

    def kill_the_long_one() -> None:
        while not killed.is_set():
            for cell, folder in _cells().items():
                job = folder / "job.json"
                if job.exists() and "circuits.composition" in job.read_text(encoding="utf-8"):
                    os.kill(cell, signal.SIGKILL)
                    killed.set()
            time.sleep(0.01)

    killer = threading.Thread(target=kill_the_long_one, daemon=True)
    killer.start()
    status = run_sweep(Sweep.from_dict(of(LONG, {"name": "metrics"})), home / "out")
    killer.join()
    assert status.done == 1 and status.to_frame()["validation_loss"].tolist() == [5.5]
    (failed,) = status.failed
    assert "killed by SIGKILL" in str(failed.error) and "memory" in str(failed.error)


@pytest.mark.slow
def test_a_stopped_sweep_keeps_what_is_done_and_leaves_no_process(home: Path):
    def stop(done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(Sweep.from_dict(of({"name": "metrics"}, LONG)), home / "out", n_jobs=2, progress=stop)
    while _cells():
        time.sleep(0.01)  # the test's time limit ends one that stays
    assert sweep_status(home / "out").headline == "1 done, 0 failed, 1 to do"


def test_cells_end_with_a_sweep_that_is_killed(home: Path):
    toml = home / "long.toml"
    toml.write_text(
        'device = "cpu"\n[[models]]\ncheckpoints = ["small"]\n[[analyses]]\nname = "circuits.composition"\n'
        "settings = { n_random = 1_000_000 }\n",
        encoding="utf-8",
    )
    sweep = subprocess.Popen([sys.executable, "-m", "aotlens", "sweep", str(toml), "--jobs", "1"])
    cells: list[int] = []
    while not cells and sweep.poll() is None:
        cells = _children(sweep.pid)
        time.sleep(0.05)
    sweep.kill()
    sweep.wait()
    assert cells
    while any(Path(f"/proc/{cell}").exists() and not _is_zombie(cell) for cell in cells):
        time.sleep(0.05)  # the test's time limit ends one that stays


_IN_A_POOL = """
import sys
from pathlib import Path
import joblib
from aotlens.sweeps import load_sweep, run_sweep
if __name__ == "__main__":
    with joblib.parallel_config("loky", n_jobs=2):
        run_sweep(load_sweep(sys.argv[1]), Path(sys.argv[1]).parent / "out")
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at /proc")
def test_cells_of_a_process_pool_end_with_a_sweep_that_is_killed(home: Path):
    """The pool's workers, which the cells' stdin comes from, outlive it."""
    (home / "long.toml").write_text(
        'device = "cpu"\n[[models]]\ncheckpoints = ["small"]\n[[analyses]]\nname = "circuits.composition"\n'
        "seeds = [1, 2]\nsettings = { n_random = 1_000_000 }\n"
    )
    (home / "tmp").mkdir()

    def cells() -> set[int]:
        pids = set()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (folder / "cmdline").read_text()
                if "aotlens.sweeps.child" in command and str(home) in command and not _is_zombie(int(folder.name)):
                    pids.add(int(folder.name))
        return pids

    command = [sys.executable, "-c", _IN_A_POOL, str(home / "long.toml")]
    sweep = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(home / "tmp")})
    while not cells() and sweep.poll() is None:
        time.sleep(0.05)
    assert cells()
    sweep.kill()
    sweep.wait()
    while cells():
        time.sleep(0.05)  # the test's time limit ends one that stays


def test_a_cell_of_a_sweep_that_was_killed_before_it_started_ends():
    name = sweep_name()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    killed = name.replace(f"/{os.getpid()}/", f"/{ended.pid}/")
    for sweep, returned in ((killed, None), ("elsewhere/1/0", 0), (name, 0)):
        cell = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(2)"])
        assert _ended(cell, None, sweep) == returned, sweep
        cell.wait()


def _children(pid: int) -> list[int]:
    children = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended
            children += [int(child) for child in task.read_text(encoding="utf-8").split()]
    return children


def _cells() -> dict[int, Path]:
    """The processes of cells that run for this one, and their folders."""
    cells = {}
    for child in _children(os.getpid()):
        with suppress(OSError):
            command = Path(f"/proc/{child}/cmdline").read_text(encoding="utf-8").split("\0")
            if "aotlens.sweeps.child" in command:
                cells[child] = Path(command[-2])
    return cells


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False


@pytest.mark.long
def test_recipes_are_trained_first_and_their_checkpoints_analysed(home: Path):
    errors = {"name": "evaluate.regression_errors", "settings": {"n_prompts": 32}}  # of the card's task
    values = of(errors) | {"models": [{"recipe": str(home / "recipe.toml"), "seeds": [4]}]}
    status = run_sweep(Sweep.from_dict(values), home / "out")
    assert (status.done, status.failed, status.missing) == (2, (), 0)
    frame = status.to_frame()
    assert set(frame.training_seed) == {4} and set(frame.model) == {"line"}

    torch.set_num_threads(1)
    trained = aotlens.load(str(run_recipe(str(home / "recipe.toml"), out=home / "alone", device="cpu", seed=4)))
    expected = regression_errors(trained, RegressionTask(d=2), n_prompts=32).to_frame()
    rows = frame[frame.training_seed == 4]
    for name in ("examples", "error"):
        np.testing.assert_array_equal(rows[name].to_numpy(float), expected[name].to_numpy(float))


def test_what_is_not_there_is_said_before_any_work(home: Path):
    for change, said in (
        ({"models": [{"checkpoints": ["smal"]}]}, "small"),
        ({"models": [{"recipe": "no-such"}]}, "no recipe 'no-such'"),
        ({"analyses": [{"name": "heads.motif"}]}, "no analysis 'heads.motif'"),
        ({"data": {"corpus": "dir:/none"}, "analyses": [{"name": "evaluate.validation_loss"}]}, "/none"),
    ):
        with pytest.raises(ValueError, match=said):
            run_sweep(Sweep.from_dict(of({"name": "metrics"}) | change), home / "out")
    assert not (home / "out").exists()
    with refused(home / "out", "no sweep"):
        sweep_status(home / "out")
