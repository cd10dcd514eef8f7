"""Layers trained to denoise: those that are bundled, those made here, and new ones in the background.

A browser chooses among names; no name of its own ever becomes a path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aotlens.views.denoising import RUNS, Trained
from app.core import Core
from app.core.jobs import Job, Jobs, Report
from app.core.parameters import within
from app.core.workshop import AppWorkshop
from app.pages.denoising.address import TRAINING, Attention, DenoisingState, TrainedTask

if TYPE_CHECKING:
    from aotlens.denoise import DenoiserTraining

#: The training that the tab opens on, where it is there.
_FIRST = "subspaces-softmax"


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """A training to be made."""

    task: TrainedTask
    attention: Attention
    epochs: int
    rate: float
    context: int
    prompts: int
    runs: int

    @property
    def key(self) -> str:
        """Return the name that it is kept as."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:6]
        return f"{self.task}-{self.attention}-{self.epochs}-epochs-{digest}"


class Trainings:
    """Trainings by name, and new ones in the background."""

    def __init__(self, core: Core) -> None:
        self.jobs = Jobs(kept=16, memory=core.memory, seconds=core.settings.job_seconds)
        self.workshop = AppWorkshop(core, core.settings.n_trainings)

    def first(self) -> str | None:
        """Return the training that the tab opens on; None where there is nothing."""
        from aotlens.denoise import trainings

        names = list(trainings())
        return _FIRST if _FIRST in names else next(iter(names), None)

    def options(self, chosen: str | None) -> list[dict[str, str]]:
        """Return every training; and what an address names, so that it can be seen where it isn't there."""
        from aotlens.denoise import trainings

        known = [{"value": name, "label": name.replace("-", " ")} for name in trainings()]
        there = chosen is None or chosen in (each["value"] for each in known)
        return known if there else [*known, {"value": str(chosen), "label": f"{chosen} (not here)"}]

    def values(self, picked: Mapping[str, Any]) -> Trained:
        """Return what the page says that it shows: a training and a run."""
        return self.of(str(picked["training"]), int(picked["run"]))

    def of(self, name: str, run: int) -> Trained:
        """Load a training as its file is now."""
        from aotlens.denoise import trainings

        path = trainings().get(name)
        return Trained(training=name, run=run, stamp=0 if path is None else path.stat().st_mtime_ns)

    def picked(self, state: DenoisingState) -> Trained | None:
        """Return what an address asks for: the run of its seed, or the first; None where there is nothing."""
        name = state.training or self.first()
        if name is None:
            return None
        seeds = self.record(name).layers.seeds
        return self.of(name, state.run if state.run in seeds else seeds[0])

    def record(self, name: str) -> DenoiserTraining:
        """Load a training by its name; raise RequestError for a name that isn't there, and for a file that can't be
        read."""
        record: DenoiserTraining = self.workshop.result(RUNS, self.of(name, 0))
        return record

    def start(self, order: TrainingRequest, session: str = "") -> Job:
        """Train in the background; the job that does, or did."""
        label = f"Training {order.attention} attention on {order.task}"
        return self.jobs.start(f"{order}", label, lambda report: self._train(order, report), session=session)

    def _train(self, order: TrainingRequest, report: Report) -> str:
        from aotlens.checkpoints import user_folder
        from aotlens.denoise import TASKS, TrainingSettings, compare_with_bayes, train_layers

        batch = next(size for size in (80, 50, 20, 10, 1) if order.prompts % size == 0)
        settings = TrainingSettings(
            n_prompts=order.prompts, batch_size=batch, n_context=order.context, n_epochs=order.epochs,
            learning_rate=order.rate, n_test_prompts=min(order.prompts, 400),
        )  # fmt: skip
        report(0, order.epochs, "drawing prompts")
        layers = train_layers(
            TASKS[order.task], order.attention, settings, seeds=range(order.runs),
            progress=lambda done, total: report(done, total, "training"),
        )  # fmt: skip
        report(order.epochs, order.epochs, "comparing with Bayes")
        training = compare_with_bayes(layers, command="trained in this app")
        folder = user_folder("denoisers")
        folder.mkdir(parents=True, exist_ok=True)
        training.save(folder / f"{order.key}.safetensors")
        return order.key


def order_of(**form: Any) -> TrainingRequest:
    """Read the request from the form, within its bounds."""
    return TrainingRequest(**within(TRAINING, form))
