"""The cells of a sweep, and running them on joblib: trainings first, then every analysis of every model."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from joblib import Parallel, delayed

from aotlens.conventions import Progress
from aotlens.files import alone_in
from aotlens.results import Result
from aotlens.sweeps.calling import CORPUS, METRICS, TASK, Inputs, Source, check, reads, task_of, wants_task
from aotlens.sweeps.plan import Analysis, Models, Sweep, load_sweep
from aotlens.sweeps.process import CHILDREN, run_job, sweep_name
from aotlens.sweeps.store import SCHEMA_VERSION, Job, Outcome, Store, fingerprint

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Planned:
    """The analyses that can run, and how many wait for a training."""

    jobs: tuple[Job, ...]
    waiting: int


@dataclass(frozen=True)
class _Model:
    """A model of the sweep as its cells need it: where it is, what it is, what it reads."""

    label: dict[str, Any]
    source: dict[str, Any]
    fingerprint: str
    metrics: dict[str, Any]
    """The metrics of its card."""
    inputs: Inputs | None
    task: dict[str, Any] | None
    archive: bytes | None


def trainings(sweep: Sweep) -> list[Job]:
    """Return a job for each recipe, seed and choice of the grid. Raise `ValueError` for recipes or data not there."""
    recipes = [models for models in sweep.models if models.recipe]
    return [_training(sweep, models, options) for models in recipes for options in models.trainings()]


def analyses(sweep: Sweep, store: Store, trained: Sequence[Job], announce: Callable[[str], None]) -> Planned:
    """Return a job for each analysis of each checkpoint, and of each training that is done.

    Raises `ValueError` for checkpoints, analyses, settings and corpora that are not there.
    """
    for analysis in sweep.analyses:
        for seed, settings in analysis.calls():
            check(analysis.name, settings, seed, sweep.data is not None)
    source = Source(sweep.data)
    calls = [(analysis, seed, settings) for analysis in sweep.analyses for seed, settings in analysis.calls()]
    jobs = []
    for name in dict.fromkeys(name for models in sweep.models for name in models.checkpoints):
        announce(f"reading {name}")
        model = _given(name, sweep, source)
        jobs += [_analysis(sweep, model, source, *call) for call in calls]
    done = [job for job in trained if store.is_done(job.key)]
    for job in done:
        model = _trained(job, store, sweep, source)
        jobs += [_analysis(sweep, model, source, *call) for call in calls]
    return Planned(tuple(jobs), (len(trained) - len(done)) * len(calls))


def _common(sweep: Sweep) -> dict[str, Any]:
    import torch

    from aotlens import __version__
    from aotlens.models import resolve_device

    return {
        "schema": SCHEMA_VERSION,
        "aotlens": __version__,
        "torch": torch.__version__,
        "threads": sweep.threads,
        "device": str(resolve_device(sweep.device)),
    }


def _training(sweep: Sweep, models: Models, options: dict[str, Any]) -> Job:
    from aotlens.data.sources import absolute_spec
    from aotlens.train.run import changed_recipe, command_of

    assert models.recipe is not None
    recipe = changed_recipe(models.recipe, **options)
    common = _common(sweep)
    settings = {f"training_{name}": value for name, value in options.items() if name != "seed"}
    corpus = models.corpus or recipe.data_section.spec
    spec = None if corpus is None else absolute_spec(corpus)
    return Job(
        label={"model": recipe.name, "training_seed": recipe.seed, **settings, "analysis": "training"},
        identity={**common, "recipe": recipe.to_dict(), "data": _data_hash(recipe, spec)},
        source={
            "recipe": recipe.to_dict(),
            "corpus": spec,
            "command": command_of(models.recipe, recipe, models.corpus, **options),
        },
        seed=recipe.seed,
        threads=sweep.threads,
        device=common["device"],
        time_limit=sweep.time_limit,
    )


def _analysis(
    sweep: Sweep, model: _Model, source: Source, analysis: Analysis, seed: int | None, settings: dict[str, Any]
) -> Job:
    common = _common(sweep)
    filled = reads(analysis.name, settings)
    corpus = source.corpus if CORPUS in filled else None
    inputs = model.inputs if filled and corpus is None else None
    task = {TASK: model.task} if wants_task(analysis.name, settings) else {}
    return Job(
        label={**model.label, "analysis": analysis.name, "seed": seed, **settings},
        identity={
            **common,
            "model": model.fingerprint,
            "analysis": analysis.name,
            "settings": {**settings, **task},
            "seed": seed,
            "inputs": None if inputs is None else inputs.sha256,
            "corpus": None if corpus is None else corpus["sha256"],
            "metrics": model.metrics if analysis.name == METRICS else None,
        },
        source=model.source,
        analysis=analysis.name,
        settings={**settings, **task},
        seed=seed,
        threads=sweep.threads,
        device=common["device"],
        time_limit=sweep.time_limit,
        inputs=inputs,
        corpus=corpus,
        archive=model.archive,
    )


def _given(name: str, sweep: Sweep, source: Source) -> _Model:
    from aotlens.checkpoints import load

    place = _absolute_folder(name)
    return _model(load(place, "cpu"), sweep, source, label={"model": name}, place=place, archive=None)


def _trained(job: Job, store: Store, sweep: Sweep, source: Source) -> _Model:
    import tempfile

    from aotlens.checkpoints import export_checkpoint, load

    folder = store.checkpoint(job.key)
    model = load(str(folder), "cpu")
    with tempfile.TemporaryDirectory() as temporary:
        archive = export_checkpoint(folder, Path(temporary) / "checkpoint.tar").read_bytes()
    label = {name: value for name, value in job.label.items() if name != "analysis"}
    return _model(model, sweep, source, label=label, place=job.label["model"], archive=archive)


def _model(
    model: Any, sweep: Sweep, source: Source, *, label: dict[str, Any], place: str, archive: bytes | None
) -> _Model:
    calls = [(analysis.name, settings) for analysis in sweep.analyses for _, settings in analysis.calls()]
    reads_inputs = any(set(reads(*call)) - {CORPUS} for call in calls)
    card = getattr(model, "card", None)
    return _Model(
        label=label,
        source={"checkpoint": place},
        fingerprint=fingerprint(model),
        metrics=getattr(card, "metrics", None) or {},
        inputs=source.inputs(model, label["model"]) if reads_inputs else None,
        task=dataclasses.asdict(task_of(model, label["model"])) if any(wants_task(*call) for call in calls) else None,
        archive=archive,
    )


def _data_hash(recipe: Any, spec: str | None) -> str | None:
    """Return the hash of a training's text or images; None where batches are drawn from the seed alone."""
    if recipe.objective == "regression":
        return None
    if recipe.objective == "classes":
        from aotlens.data.images import open_images

        return open_images(spec or "").sha256()
    from aotlens.data import open_corpus

    return open_corpus(spec or "").sha256()


def _absolute_folder(name: str) -> str:
    return str(Path(name).expanduser().resolve()) if Path(name).expanduser().is_dir() else name


@dataclass(frozen=True, eq=False, repr=False)
class SweepStatus(Result):
    """The progress of a sweep, and its results: `to_frame()` is one table over all cells that are done."""

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
        """Return a row for each row of each cell's table: cell, model, analysis, seed and settings, then the analysis's
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
