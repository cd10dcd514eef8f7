"""A sweep as jobs: every training, and every analysis of every model, with all that decides its result."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.sweeps.calling import CORPUS, check, reads
from aotlens.sweeps.job import SCHEMA_VERSION, Job, fingerprint
from aotlens.sweeps.plan import Analysis, Data, Models, Sweep
from aotlens.sweeps.store import Store

if TYPE_CHECKING:
    from aotlens.data import Corpus


@dataclass(frozen=True)
class Planned:
    """The analyses that can run, and how many wait for a training."""

    jobs: tuple[Job, ...]
    waiting: int


@dataclass(frozen=True)
class _Model:
    """A model of the sweep as its cells need it: where it is, what it is, its text."""

    label: dict[str, Any]
    source: dict[str, Any]
    fingerprint: str
    tokens: np.ndarray | None
    archive: bytes | None


def trainings(sweep: Sweep) -> list[Job]:
    """A job for each recipe, seed and choice of the grid; raises `ValueError` for recipes or data not there."""
    recipes = [models for models in sweep.models if models.recipe]
    return [_training(sweep, models, options) for models in recipes for options in models.trainings()]


def analyses(sweep: Sweep, store: Store, trained: Sequence[Job], announce: Callable[[str], None]) -> Planned:
    """A job for each analysis of each checkpoint, and of each training that is done.

    Raises `ValueError` for checkpoints, analyses, settings and corpora that are not there.
    """
    for analysis in sweep.analyses:
        for seed, settings in analysis.calls():
            check(analysis.name, settings, seed, sweep.data is not None)
    text = _Text(sweep.data, sweep.analyses)
    calls = [(analysis, seed, settings) for analysis in sweep.analyses for seed, settings in analysis.calls()]
    jobs = []
    for name in dict.fromkeys(name for models in sweep.models for name in models.checkpoints):
        announce(f"reading {name}")
        model = _given(name, text)
        jobs += [_analysis(sweep, model, text, *call) for call in calls]
    done = [job for job in trained if store.is_done(job.key)]
    for job in done:
        model = _trained(job, store, text)
        jobs += [_analysis(sweep, model, text, *call) for call in calls]
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
    chosen = {name: value for name, value in options.items() if value is not None and name != "seed"}
    said = models.corpus or recipe.data_section.spec
    spec = None if said is None else absolute_spec(said)
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
    )


def _analysis(
    sweep: Sweep, model: _Model, text: _Text, analysis: Analysis, seed: int | None, settings: dict[str, Any]
) -> Job:
    common = _common(sweep)
    filled = reads(analysis.name, settings)
    corpus = text.corpus if filled == CORPUS else None
    tokens = model.tokens if filled is not None and corpus is None else None
    return Job(
        label={**model.label, "analysis": analysis.name, "seed": seed, **settings},
        identity={
            **common,
            "model": model.fingerprint,
            "analysis": analysis.name,
            "settings": settings,
            "seed": seed,
            "tokens": None if tokens is None else hashlib.sha256(tokens.tobytes()).hexdigest(),
            "corpus": None if corpus is None else corpus["sha256"],
        },
        source=model.source,
        analysis=analysis.name,
        settings=settings,
        seed=seed,
        threads=sweep.threads,
        device=common["device"],
        tokens=tokens,
        corpus=corpus,
        archive=model.archive,
    )


def _given(name: str, text: _Text) -> _Model:
    from aotlens.checkpoints import load

    place = _absolute_folder(name)
    model = load(place, "cpu")
    return _Model({"model": name}, {"checkpoint": place}, fingerprint(model), text.windows(model), None)


def _trained(job: Job, store: Store, text: _Text) -> _Model:
    import tempfile

    from aotlens.checkpoints import export_checkpoint, load

    folder = store.checkpoint(job.key)
    model = load(str(folder), "cpu")
    with tempfile.TemporaryDirectory() as temporary:
        archive = export_checkpoint(folder, Path(temporary) / "checkpoint.tar").read_bytes()
    label = {name: value for name, value in job.label.items() if name != "analysis"}
    return _Model(label, {"checkpoint": job.label["model"]}, fingerprint(model), text.windows(model), archive)


class _Text:
    """The sweep's text: opened once, and cut for each model by its own tokenizer."""

    def __init__(self, data: Data | None, wanted: Sequence[Analysis]) -> None:
        self._data = data
        self._filled = {reads(each.name, settings) for each in wanted for _, settings in each.calls()} - {None}
        self._opened: Corpus | None = None
        self._said: dict[str, str] | None = None

    @property
    def corpus(self) -> dict[str, str] | None:
        """Where a worker finds the corpus, and what it must hold."""
        from aotlens.data.sources import absolute_spec

        if self._said is None and self._data is not None:
            self._said = {"spec": absolute_spec(self._data.corpus), "sha256": self._open().sha256()}
        return self._said

    def windows(self, model: Any) -> np.ndarray | None:
        """Windows `[window, pos]` of documents that the model was not trained on, where an analysis reads some."""
        if self._data is None or not self._filled - {CORPUS}:
            return None
        from aotlens.distill import held_out_windows

        return held_out_windows(model, self._open(), self._data.tokens).cpu().numpy()

    def _open(self) -> Corpus:
        from aotlens.data import open_corpus

        assert self._data is not None
        if self._opened is None:
            self._opened = open_corpus(self._data.corpus)
        return self._opened


def _data_hash(recipe: Any, spec: str | None) -> str | None:
    """What a training learns from: the hash of its text or images; None where batches are drawn from the seed alone."""
    if recipe.objective == "regression":
        return None
    if recipe.objective == "classes":
        from aotlens.data.images import open_images

        return open_images(spec or "").sha256()
    from aotlens.data import open_corpus

    return open_corpus(spec or "").sha256()


def _absolute_folder(name: str) -> str:
    return str(Path(name).expanduser().resolve()) if Path(name).expanduser().is_dir() else name
