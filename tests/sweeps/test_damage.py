"""Cells that fail, damaged folders, and a killed worker of a Dask cluster: nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest

from aotlens.files import alone_in
from aotlens.sweeps import Sweep, child, process, run_sweep, sweep_status
from aotlens.sweeps.store import Job, Outcome, Store, packed
from tests.messages import refused, says
from tests.sweeps.conftest import of

METRICS = {"name": "metrics"}


def _job(number: int = 0, **more: Any) -> Job:
    identity = {"number": number, "aotlens": "0", "torch": "0", "model": ""}
    return Job(
        label={"model": "small", "analysis": "metrics"}, identity=identity, source={"checkpoint": "small"}, **more
    )


def _outcome(job: Job, frame: pd.DataFrame | None = None, **more: Any) -> Outcome:
    columns = None if frame is None else packed(frame)
    return Outcome(key=job.key, label=job.label, identity=job.identity, columns=columns, **more)


def test_a_cell_that_takes_too_long_is_ended_and_failed():
    outcome = process.run_job(_job(time_limit=0.2), "a sweep")
    says(str(outcome.error), "time_limit = 0.2")
    assert outcome.seconds < 60


def test_what_a_cell_has_started_ends_with_it():
    cell = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert cell.stdout is not None
    started = int(cell.stdout.readline())
    process.end(cell)
    cell.wait()
    cell.stdout.close()
    while Path(f"/proc/{started}").exists() and b") Z " not in Path(f"/proc/{started}/stat").read_bytes():
        time.sleep(0.01)  # the test's time limit ends one that stays
    process.end(cell)  # which has gone


def test_a_full_disk_is_a_failed_cell(monkeypatch: pytest.MonkeyPatch):
    def full(*of: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("aotlens.sweeps.process.tempfile.TemporaryDirectory", full)
    outcome = process.run_job(_job(), "a sweep")
    says(str(outcome.error), "could not be run", "No space")


def test_signals_without_a_name_and_a_long_log(tmp_path: Path):
    says(process._read(tmp_path, -40, None)["error"], "killed by signal 40")
    (tmp_path / "log.txt").write_bytes(b"x" * 100_000 + "…end".encode())
    assert process._end_of(tmp_path / "log.txt").endswith("x…end")


def test_another_version_on_a_worker_is_refused():
    from aotlens import __version__

    child._require_versions({"aotlens": __version__, "torch": "2.0"}, "2.0")
    with refused("torch 2.1", "2.0"):
        child._require_versions({"aotlens": __version__, "torch": "2.0"}, "2.1")
    with refused("0.0", "the same"):
        child._require_versions({"aotlens": "0.0", "torch": "2.0"}, "2.0")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _of_another_cell(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(record | {"identity": {"number": 7}}), encoding="utf-8")


def _without_a_field(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({name: value for name, value in record.items() if name != "label"}), encoding="utf-8")


def _deep(path: Path) -> None:
    path.write_text("[" * 100_000, encoding="utf-8")


@pytest.mark.parametrize("damage", [_cut, _of_another_cell, _without_a_field, _deep])
def test_a_damaged_record_is_a_cell_that_was_not_run(tmp_path: Path, damage: Any):
    store, jobs = Store(tmp_path), [_job(0), _job(1)]
    store.save_plan(jobs, 0)
    for job in jobs:
        store.save(_outcome(job, pd.DataFrame({"value": [1.5]})))
    damage(tmp_path / "cells" / f"{jobs[0].key}.json")
    assert [store.is_done(job.key) for job in jobs] == [False, True]
    status = sweep_status(tmp_path)
    assert status.headline == "1 done, 0 failed, 1 to do" and status.to_frame()["value"].tolist() == [1.5]
    store.save(_outcome(jobs[0], pd.DataFrame({"value": [2.5]})))
    assert sweep_status(tmp_path).to_frame()["value"].tolist() == [2.5, 1.5]


def test_columns_that_are_none_are_named_with_their_file(tmp_path: Path):
    store, job = Store(tmp_path), _job()
    store.save_plan([job], 0)
    store.save(_outcome(job, pd.DataFrame({"value": [1.5, 2.5], "text": ["a", "b"]})))
    path = tmp_path / "cells" / f"{job.key}.json"
    record = json.loads(path.read_text(encoding="utf-8"))
    record["columns"]["value"]["values"] = ["x"]
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"{job.key}\.json: .*cannot be read.*Delete it"):
        sweep_status(tmp_path).to_frame()


def test_a_damaged_plan_says_what_to_do(tmp_path: Path):
    Store(tmp_path).save_plan([_job()], 0)
    _cut(tmp_path / "plan.json")
    with refused("plan.json", "damaged"):
        sweep_status(tmp_path)


def test_a_training_whose_checkpoint_is_gone_is_run_again(tmp_path: Path, home: Path):
    from aotlens.checkpoints import export_checkpoint

    archive = export_checkpoint(home / "home" / "checkpoints" / "small", tmp_path / "small.tar").read_bytes()
    store, job = Store(tmp_path / "out"), _job()
    leftover = tmp_path / "out" / f".{job.key}" / "small"
    leftover.mkdir(parents=True)  # of a sweep that was killed while it unpacked
    (leftover / "config.json").write_text("{", encoding="utf-8")
    for _ in range(2):
        assert not store.is_done(job.key)
        store.save(_outcome(job, archive=archive))
        assert store.is_done(job.key) and store.checkpoint(job.key).name == "small"
        shutil.rmtree(tmp_path / "out" / "checkpoints")


def test_two_sweeps_at_once_in_one_folder_are_refused(home: Path):
    (home / "out").mkdir()
    with alone_in(home / "out") as alone, refused("another sweep"):
        assert alone
        run_sweep(Sweep.from_dict(of(METRICS)), home / "out")
    assert os.listdir(home / "out") == []


def test_a_folder_that_is_none_is_named(home: Path):
    (home / "out").write_text("a file", encoding="utf-8")
    with pytest.raises(OSError, match="out"):
        run_sweep(Sweep.from_dict(of(METRICS)), home / "out")


def test_every_result_can_be_written(tmp_path: Path):
    store = Store(tmp_path)
    table = pd.DataFrame(
        {
            "large": pd.Series([10**30, 2], dtype=object),
            "mixed": pd.Series([1, "a"], dtype=object),
            "text": ["\x1b[31m", None],
            "flag": [True, False],
            "number": [np.inf, np.nan],
        }
    )
    store.write_table(table)
    again = pd.read_parquet(tmp_path / "results.parquet")
    assert again["large"].tolist() == [str(10**30), "2"] and again["mixed"].tolist() == ["1", "a"]
    assert again["flag"].tolist() == [True, False] and len(pd.read_csv(tmp_path / "results.csv")) == 2


MOTIFS = {"name": "heads.motif_scores", "seeds": [0, 1, 2], "settings": {"n_sequences": 2, "half_length": 5}}


@pytest.mark.minutes
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
def test_a_killed_worker_loses_nothing_and_the_numbers_are_the_same(home: Path):
    distributed = pytest.importorskip("distributed")
    sweep = Sweep.from_dict(of(MOTIFS))
    local = run_sweep(sweep, home / "local", n_jobs=2)
    assert local.done == 3
    killed: list[int] = []

    with (
        warnings.catch_warnings(),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        distributed.Client(cluster) as client,
        joblib.parallel_config("dask", client=client),
    ):
        warnings.simplefilter("ignore")

        def kill_a_worker(done: int, total: int) -> None:
            if done and not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        status = run_sweep(sweep, home / "cluster", progress=kill_a_worker)
    assert killed and (status.done, status.failed, status.missing) == (3, (), 0)
    cells = sorted((home / "local" / "cells").iterdir())
    assert [cell.name for cell in cells] == sorted(cell.name for cell in (home / "cluster" / "cells").iterdir())
    for cell in cells:
        one, other = (json.loads((home / where / "cells" / cell.name).read_text()) for where in ("local", "cluster"))
        assert one["columns"] == other["columns"]
