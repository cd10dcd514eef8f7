"""Running a sweep: trainings first, then every analysis of every model, on joblib."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from joblib import Parallel, delayed

from aotlens.conventions import Progress
from aotlens.files import alone_in
from aotlens.results import Result
from aotlens.sweeps.cells import analyses, trainings
from aotlens.sweeps.job import Job, Outcome
from aotlens.sweeps.plan import Sweep, load_sweep
from aotlens.sweeps.process import CHILDREN, run_job, sweep_name
from aotlens.sweeps.store import Store

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class SweepStatus(Result):
    """The progress of a sweep, and what it found: `to_frame()` is one table over all cells that are done."""

    folder: Path
    done: int
    failed: tuple[Outcome, ...]
    """Cells that raised, or whose process was killed, each with its `error`; the next run tries them again."""
    missing: int
    """Cells that were not reached, those of a training that failed or was not reached included."""

    @property
    def headline(self) -> str:
        return f"{self.done} done, {len(self.failed)} failed, {self.missing} to do"

    def to_frame(self) -> pd.DataFrame:
        """Return a row a row of each cell's table: cell, model, analysis, seed and settings, then the analysis's
        columns."""
        store = Store(self.folder)
        return store.table(store.plan()[0])


def run_sweep(
    sweep: Sweep | str | Path,
    out: str | Path,
    *,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    announce: Callable[[str], None] = lambda message: None,
) -> SweepStatus:
    """Run what of a sweep is not in the folder `out` yet; `sweep` is a `Sweep` or the path of its TOML file.

    Each cell runs in a process of its own, with `sweep.threads` threads and its seed set, so one that raises or is
    killed is a failed cell, recorded with its error, and the rest goes on. Cells run `n_jobs` at a time on this machine
    or where `joblib.parallel_config` says, inside `with joblib.parallel_config("dask")` on the cluster of the current
    `distributed.Client`. Workers need aotlens, and the checkpoints and corpora that the sweep names; text for analyses
    and trained checkpoints are sent. Results come back to this process, which writes each as it comes.

    A cell is named by the hash of all that decides its result (versions, weights, analysis, settings, seed, text,
    device, threads): one that is done is not run again. `progress(done, total)` counts cells; to stop a sweep, raise in
    it (or Ctrl-C): what is done is kept, and cells that run on this machine are ended. On a cluster, those that run go
    on to their end, and are run again by the next call. `announce` gets, before any cell runs, the name of each
    checkpoint that is read, and how many cells there are and are done already.

    Raises `ValueError`, before any work, for models, analyses and settings that are not there, and where another sweep
    runs in the folder.
    """
    sweep = sweep if isinstance(sweep, Sweep) else load_sweep(sweep)
    store = Store(out)
    first = trainings(sweep)
    planned = analyses(sweep, store, first, announce)
    store.folder.mkdir(parents=True, exist_ok=True)
    with alone_in(store.folder) as alone:
        if not alone:
            raise ValueError(f"{out}: another sweep runs in this folder. Wait for it, or choose another (--out).")
        store.save_plan([*first, *planned.jobs], planned.waiting)
        n_cells = len(first) + len(planned.jobs) + planned.waiting
        n_done = sum(store.is_done(job.key) for job in (*first, *planned.jobs))
        announce(f"cells to run: {n_cells - n_done}; done already: {n_done}")
        report = _Report(n_cells, progress)
        _run(first, store, n_jobs, report)
        if planned.waiting:
            planned = analyses(sweep, store, first, announce)
            store.save_plan([*first, *planned.jobs], planned.waiting)
        _run(planned.jobs, store, n_jobs, report)
        return sweep_status(out)


def sweep_status(out: str | Path) -> SweepStatus:
    """Read the progress of a sweep from what it has written in its folder. Raises `ValueError` for a folder of none."""
    store = Store(out)
    cells, waiting = store.plan()
    outcomes = [store.outcome(key) for key in cells]
    failed = tuple(outcome for outcome in outcomes if outcome is not None and outcome.error is not None)
    n_done = sum(outcome is not None and outcome.error is None for outcome in outcomes)
    return SweepStatus(Path(out), n_done, failed, len(cells) - n_done - len(failed) + waiting)


class _Report:
    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def add(self, n: int) -> None:
        self._done += n
        if self._progress is not None:
            self._progress(self._done, self._total)


def _run(jobs: Sequence[Job], store: Store, n_jobs: int | None, report: _Report) -> None:
    missing = [job for job in jobs if not store.is_done(job.key)]
    if jobs:
        report.add(len(jobs) - len(missing))
    if not missing:
        return
    name = sweep_name()
    try:
        with closing(_outcomes(missing, n_jobs, name)) as outcomes:
            for outcome in outcomes:
                store.save(outcome)
                report.add(1)
    finally:
        CHILDREN.stop(name)


def _outcomes(jobs: Sequence[Job], n_jobs: int | None, name: str) -> Generator[Outcome, None, None]:
    parallel = Parallel(n_jobs=n_jobs, prefer="threads", batch_size=1, return_as="generator_unordered")
    outcomes = parallel(delayed(run_job)(job, name) for job in jobs)
    try:
        for outcome in outcomes:  # noqa: UP028 ("yield from" closes joblib's generator before what stands below)
            yield outcome
    finally:
        CHILDREN.stop(name)  # before joblib waits for its threads, which wait for them
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*tasks which were still being processed.*")
            outcomes.close()
