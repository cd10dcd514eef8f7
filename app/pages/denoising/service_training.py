"""Layers trained to denoise: those that are bundled, those made here, and new ones in the background.

A browser chooses among names; no name of its own ever becomes a path.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.core import Core
from app.core.cache import Cache
from app.core.errors import RequestError
from app.core.jobs import Job, Jobs, Report
from app.core.parameters import within
from app.pages.denoising.address import TRAINING, Attention, TrainedTask

if TYPE_CHECKING:
    from aotlens.denoise import DenoiserTraining, Landscape

#: The name of the best scaled identities among `scales`.
BEST = "best"
#: What the tab opens on, where it is there.
_FIRST = "subspaces-softmax"
_SUFFIX = ".safetensors"
#: Prompts and points a side of the loss over α and β: on 800 prompts it looks the same and takes four times as long.
N_PROMPTS, _SIDE = 200, 50


@dataclass(frozen=True, kw_only=True)
class Order:
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
        """What it is kept as."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()[:6]
        return f"{self.task}-{self.attention}-{self.epochs}-epochs-{digest}"


class Trainings:
    """Trainings by name, read once, and new ones in the background."""

    def __init__(self, core: Core) -> None:
        self.jobs = Jobs(kept=16, memory=core.memory, seconds=core.settings.job_seconds)
        self._records: Cache[tuple[str, int], DenoiserTraining] = core.memory.cache(core.settings.n_trainings)
        self._landscapes: Cache[tuple[str, int], Landscape] = core.memory.cache(core.settings.n_trainings)

    def list(self) -> dict[str, Path]:
        """The files by their names: the bundled ones first, then those made here."""
        from aotlens.denoise.stored import BUNDLED, bundled_path

        bundled = [bundled_path(*key) for key in BUNDLED]
        made_here = sorted(_folder().glob(f"*{_SUFFIX}"))
        paths = [path for path in (*bundled, *made_here) if path.exists()]
        return {path.name.removesuffix(_SUFFIX): path for path in paths}

    def first(self) -> str | None:
        """What the tab opens on; None where there is nothing."""
        names = list(self.list())
        return _FIRST if _FIRST in names else next(iter(names), None)

    def record(self, name: str) -> DenoiserTraining:
        """Raises RequestError for a name that isn't there, and for a file that can't be read."""
        from aotlens.denoise import load_training

        path, stamp = self._file(name)
        try:
            return self._records.get((name, stamp), lambda: load_training(path))
        except (OSError, ValueError) as error:
            # Where it lies is nobody's business at the browser.
            why = str(error).replace(f"{path.parent}/", "")
            raise RequestError(f"The training {name} can't be read. {why}") from error

    def loading(self, name: str) -> str:
        """Python that gives the record."""
        from aotlens.denoise.stored import BUNDLED, bundled_path

        path = self.list()[name]
        for task, attention, transformed in BUNDLED:
            if path == bundled_path(task, attention, transformed):
                return f"aotlens.denoise.stored({task!r}, {attention!r}, transformed={transformed})"
        folder = "aotlens.checkpoints.home_folder().parent / 'denoisers'"
        return f"aotlens.denoise.load_training({folder} / {path.name!r})"

    def landscape(self, name: str) -> Landscape:
        """The loss of scaled identities over α and β around what a training found."""
        record, (_, stamp) = self.record(name), self._file(name)
        return self._landscapes.get((name, stamp), lambda: _landscape(record))

    def start(self, order: Order, session: str = "") -> Job:
        """Train in the background; the job that does, or did."""
        label = f"Training {order.attention} attention on {order.task}"
        return self.jobs.start(f"{order}", label, lambda report: self._train(order, report), session=session)

    def _train(self, order: Order, report: Report) -> str:
        from aotlens.denoise import TASKS, TrainingSettings, hold_against_bayes, save_training, train_layers

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
        training = hold_against_bayes(layers, command="trained in this app")
        _folder().mkdir(parents=True, exist_ok=True)
        save_training(_folder() / f"{order.key}{_SUFFIX}", training)
        return order.key

    def _file(self, name: str) -> tuple[Path, int]:
        files = self.list()
        if name not in files:
            known = ", ".join(files) or "none yet"
            raise RequestError(f"No training is called {name!r}. There are: {known}. Choose one, or train below.")
        return files[name], files[name].stat().st_mtime_ns


def order_of(**form: Any) -> Order:
    """What the form says, within its bounds."""
    return Order(**within(TRAINING, form))


def scales(record: DenoiserTraining) -> dict[str, tuple[float, float]]:
    """Named (α, β) of the best scaled identities and of runs that are not stuck, signs that flip together undone."""
    layers, best = record.layers, record.optimum
    points = {} if layers.kind == "linear" else {BEST: (best.alpha, best.beta)}
    rows = zip(layers.seeds, layers.alpha.tolist(), layers.beta.tolist(), layers.stuck.tolist(), strict=True)
    for seed, alpha, beta, stuck in rows:
        if not stuck:
            sign = -1 if alpha < 0 and beta < 0 else 1
            points[f"seed {seed}"] = (sign * alpha, sign * beta)
    return points


def _landscape(record: DenoiserTraining) -> Landscape:
    import torch

    from aotlens.denoise import landscape

    layers = record.layers
    points = [point for point in scales(record).values() if min(point) > 0] or [(1.0, 1.0)]
    ends = [1.6 * max(point[axis] for point in points) for axis in (0, 1)]
    prompts = layers.task.sample(N_PROMPTS, layers.settings.n_context, 2 * layers.seeds[0] + 1)
    alphas, betas = (torch.linspace(end / _SIDE, end, _SIDE, dtype=torch.float64) for end in ends)
    return landscape(prompts, alphas, betas, layers.kind)


def _folder() -> Path:
    """The user's own: `$AOTLENS_HOME/denoisers`, by default in `~/.cache/aotlens`."""
    from aotlens.checkpoints.catalog import home_folder

    return home_folder().parent / "denoisers"
