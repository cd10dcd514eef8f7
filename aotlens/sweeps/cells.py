"""A sweep as jobs: every training, and every analysis of every model, with all that decides its result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotlens.sweeps.calling import CORPUS, METRICS, TASK, check, reads, wants_task
from aotlens.sweeps.inputs import Inputs, Source, task_of
from aotlens.sweeps.job import SCHEMA_VERSION, Job, fingerprint
from aotlens.sweeps.plan import Analysis, Models, Sweep
from aotlens.sweeps.store import Store


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
    chosen = {f"training_{name}": value for name, value in options.items() if name != "seed"}
    corpus = models.corpus or recipe.data_section.spec
    spec = None if corpus is None else absolute_spec(corpus)
    return Job(
        label={"model": recipe.name, "training_seed": recipe.seed, **chosen, "analysis": "training"},
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
    given = {TASK: model.task} if wants_task(analysis.name, settings) else {}
    return Job(
        label={**model.label, "analysis": analysis.name, "seed": seed, **settings},
        identity={
            **common,
            "model": model.fingerprint,
            "analysis": analysis.name,
            "settings": {**settings, **given},
            "seed": seed,
            "inputs": None if inputs is None else inputs.sha256,
            "corpus": None if corpus is None else corpus["sha256"],
            "metrics": model.metrics if analysis.name == METRICS else None,
        },
        source=model.source,
        analysis=analysis.name,
        settings={**settings, **given},
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
    calls = [(each.name, settings) for each in sweep.analyses for _, settings in each.calls()]
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
