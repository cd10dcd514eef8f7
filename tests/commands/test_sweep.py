"""`aotlens sweep FILE` runs a sweep, says how far it is, and leaves one table."""

from __future__ import annotations

from pathlib import Path

import joblib
import pandas as pd
import pytest

from aotlens.commands.sweep import _cluster
from aotlens.sweeps import process
from aotlens.sweeps.store import Job, Outcome
from tests.messages import says

from .conftest import Run

TOML = """
device = "cpu"
[[models]]
checkpoints = ["small"]
[[analyses]]
name = "circuits.copying_rate"
grid = { heads = ["0.1", "7.7"] }
"""


@pytest.mark.long
def test_it_runs_and_says_what_came_of_it(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cell that fails does so without a process; tests/sweeps has one that fails in its own."""

    def run_job(job: Job, sweep: str) -> Outcome:
        if job.label["heads"] == "7.7":
            return Outcome(key=job.key, label=job.label, identity=job.identity, error="ValueError: head 7.7")
        return process.run_job(job, sweep)

    monkeypatch.setattr("aotlens.sweeps.running.run_job", run_job)
    path = tmp_path / "rates.toml"
    path.write_text(TOML, encoding="utf-8")
    code, text, error = run("sweep", str(path))
    assert code == 1  # a cell failed
    *said, first, last = error.splitlines()
    assert said[0].startswith("cells run on this machine, ") and said[1:] == [
        "reading small",
        "cells to run: 2; done already: 0",
    ]
    assert [first, last] == ["1 of 2 cells", "2 of 2 cells"]
    assert "1 done, 1 failed, 0 to do." in text and "heads 7.7" in text and "ValueError" in text
    table = pd.read_csv(tmp_path / "rates" / "results.csv", dtype={"heads": str})
    again = pd.read_parquet(tmp_path / "rates" / "results.parquet")
    pd.testing.assert_frame_equal(table.drop(columns="seed"), again.drop(columns="seed"), check_dtype=False)
    assert again.seed.isna().all() and table.seed.isna().all()
    assert set(table.model) == {"small"} and set(table.heads) == {"0.1"}
    code, text, error = run("sweep", "status", str(path))
    assert code == 0 and "1 done, 1 failed, 0 to do." in text and "7.7" in text and error == ""
    code, text, error = run("sweep", str(path), "--jobs", "1")
    assert code == 1
    says(error, "on this machine", "1 at a time")
    assert error.endswith("cells to run: 1; done already: 1\n1 of 2 cells\n2 of 2 cells\n")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
def test_it_waits_for_the_workers_of_a_cluster_and_says_so() -> None:
    distributed = pytest.importorskip("distributed")
    said: list[str] = []
    with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None, protocol="tcp") as cluster:

        def say(message: str) -> None:
            if not said:
                cluster.scale(1)
            said.append(message)

        address = cluster.scheduler_address
        cluster.new_spec["options"]["nthreads"] = 2
        with _cluster(address, say):
            assert joblib.effective_n_jobs() == 2
    waiting, running = said
    says(waiting, "waiting", f"dask worker {address}", "Ctrl-C")
    says(running, f"1 Dask worker of {address}", "2 at a time")


def test_what_cannot_be_run_is_said(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    for arguments, said in (
        (("sweep", "some.txt"), "expected a TOML file"),
        (("sweep", str(path)), "cannot be read"),
        (("sweep", "status", str(path)), "no sweep was run here"),
    ):
        code, text, error = run(*arguments)
        assert code == 2 and text == "" and said in error
    path.write_text(TOML, encoding="utf-8")
    code, _, error = run("sweep", str(path), "--dask", "tcp://127.0.0.1:1", "--jobs", "2")
    assert code == 2
    says(error, "--jobs", "this machine")


def test_one_that_is_stopped_says_that_nothing_is_lost(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*of: object, **named: object) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "rates.toml"
    path.write_text(TOML, encoding="utf-8")
    monkeypatch.setattr("aotlens.sweeps.run_sweep", stopped)
    code, text, error = run("sweep", str(path))
    assert code == 130 and text == ""
    says(error, "rates: stopped", "is kept", "same command")
