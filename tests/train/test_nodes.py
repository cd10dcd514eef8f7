"""Training across machines, as docs/several-machines.md has it: two `torchrun` agents, each with its own disk.

What two processes find with half of the rows each, one process finds with all rows in two passes, bit for bit: halves
are exact, and a sum of two has one order.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from aotlens.checkpoints import read_info
from aotlens.train.distributed import World
from tests.messages import refused
from tests.test_structure import ROOT
from tests.train import agents
from tests.train.conftest import RECIPE
from tests.train.test_images import RECIPE as IMAGES
from tests.train.test_regression import RECIPE as REGRESSION

#: Batches of 8 rows and then of 4.
MIXED = "batch_size = 4".join(RECIPE.rsplit("batch_size = 8", 1))


@pytest.fixture
def homes(tmp_path: Path) -> tuple[Path, Path]:
    """$AOTLENS_HOME of each machine."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    return first, second


def _write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def _history(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def _logs(homes: tuple[Path, Path]) -> str:
    return "\n".join((home / f"node-{node}.log").read_text(encoding="utf-8") for node, home in enumerate(homes))


def test_batches_that_do_not_divide_are_refused_before_any_step():
    World(rank=0, size=3).require_equal_shares([9, 6])
    with refused("8 rows", "3 processes", "batch_size"):
        World(rank=0, size=3).require_equal_shares([9, 8])


def test_the_commands_of_the_page_are_commands_of_torchrun():
    page = (ROOT / "docs" / "several-machines.md").read_text(encoding="utf-8")
    commands = [line.split() for line in page.splitlines() if line.startswith("torchrun --")]
    assert len(commands) == 2
    for _, *words in commands:
        said = get_args_parser().parse_args(words)
        assert said.nnodes == "2" and said.module and said.training_script == "aotlens"
        assert said.training_script_args[:4] == ["train", "RECIPE", "--out", "DIR"]


@pytest.mark.minutes
@pytest.mark.parametrize(
    ("recipe", "has_text", "half"),
    [(RECIPE, True, 4), (IMAGES.replace("images = 9_600", "images = 1_600"), False, 16), (REGRESSION, False, 8)],
    ids=["text", "images", "regression"],
)
def test_two_machines_train_as_one_process(
    recipe: str, has_text: bool, half: int, corpus: str, homes: tuple[Path, Path], tmp_path: Path
) -> None:
    command = [_write(tmp_path / "recipe.toml", recipe), *(["--corpus", corpus] if has_text else [])]
    outs = [home / "out" for home in homes]
    codes = agents.run([[*command, "--out", str(out)] for out in outs], homes)
    assert codes == [0, 0], _logs(homes)
    assert outs[0].is_dir() and not outs[1].exists(), "the machine that leads writes, and no other"
    assert read_info(outs[0]).device == "2 × CPU"
    agents.alone([*command, "--rows-at-once", str(half), "--out", str(tmp_path / "alone")], homes[0])
    agents.assert_same_weights(tmp_path / "alone", outs[0])


@pytest.mark.minutes
def test_stages_of_other_batches_on_machines_of_other_memory(
    corpus: str, homes: tuple[Path, Path], tmp_path: Path
) -> None:
    """8 rows a step and then 4; one machine takes 2 of its share at once, the other 1. Sums differ by their order."""
    assert MIXED.count("batch_size = 8") == MIXED.count("batch_size = 4") == 1
    command = [_write(tmp_path / "recipe.toml", MIXED), "--corpus", corpus]
    outs = [home / "out" for home in homes]
    codes = agents.run(
        [[*command, "--out", str(out), "--rows-at-once", rows] for out, rows in zip(outs, "21", strict=True)], homes
    )
    assert codes == [0, 0], _logs(homes)
    agents.alone([*command, "--out", str(tmp_path / "alone")], homes[0])
    losses = [[line["loss"] for line in _history(folder)] for folder in (outs[0], tmp_path / "alone")]
    assert len(losses[0]) == 10 + 20  # a line every 256 tokens
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


@pytest.mark.minutes
def test_a_run_goes_on_from_the_disk_of_the_machine_that_leads(
    corpus: str, homes: tuple[Path, Path], tmp_path: Path
) -> None:
    """Without a shared folder the second machine has no state, and is given weights and moments."""
    outs = [home / "out" for home in homes]
    command = [_write(tmp_path / "recipe.toml", RECIPE), "--corpus", corpus]
    machines = [[*command, "--out", str(out)] for out in outs]
    port = agents.free_port()
    started = [agents.start(node, agents.by_number(node, port), machines[node], homes[node]) for node in (0, 1)]
    while not (homes[0] / "out.training" / "state.safetensors").exists() and started[0].poll() is None:
        time.sleep(0.02)
    for machine in started:
        _lose(machine)
    assert (homes[0] / "out.training").exists() and not (homes[1] / "out.training").exists()
    codes = agents.run([[*machine, "--resume"] for machine in machines], homes)
    assert codes == [0, 0], _logs(homes)
    agents.alone([*command, "--rows-at-once", "4", "--out", str(tmp_path / "alone")], homes[0])
    agents.assert_same_weights(tmp_path / "alone", outs[0])


@pytest.mark.minutes
def test_machines_that_differ_are_named(corpus: str, homes: tuple[Path, Path], tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(corpus.removeprefix("dir:"), other)
    (other / "a.txt").write_text((other / "b.txt").read_text(encoding="utf-8"), encoding="utf-8")
    recipe = _write(tmp_path / "recipe.toml", RECIPE)
    machines = [
        [recipe, "--corpus", spec, "--out", str(home / "out")]
        for spec, home in zip((corpus, f"dir:{other}"), homes, strict=True)
    ]
    assert 0 not in agents.run(machines, homes)
    for node, home in enumerate(homes):
        log = (home / f"node-{node}.log").read_text(encoding="utf-8")
        assert "process 1 on " in log and "started with another corpus sha256" in log, log
        assert not (home / "out").exists()


def _lose(machine: subprocess.Popen[str]) -> None:
    """Kill an agent and its process, as the end of a machine does."""
    tasks = Path(f"/proc/{machine.pid}/task").glob("*/children")
    processes = [int(child) for task in tasks for child in task.read_text(encoding="utf-8").split()]
    machine.kill()
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    machine.wait()
