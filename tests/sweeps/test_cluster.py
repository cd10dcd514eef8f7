"""A sweep on a Dask cluster of two workers, one of which is killed in mid-run: nothing is lost, and no bit differs."""

from __future__ import annotations

import json
import os
import signal
import warnings
from pathlib import Path

import joblib
import pytest

from aotlens.sweeps import Sweep, run_sweep
from tests.sweeps.conftest import of

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
