"""Trainings of denoisers by name: those that are bundled, and those that a user has made; what they found."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.checkpoints import user_folder
from aotlens.conventions import Progress
from aotlens.denoise.one_layer import Landscape, landscape
from aotlens.denoise.stored import BUNDLED, DenoiserTraining, bundled_path, compare_with_bayes
from aotlens.denoise.tasks import TASKS
from aotlens.denoise.training import TrainingSettings, train_layers
from aotlens.files import without_folder
from aotlens.results import Result, load

if TYPE_CHECKING:
    import pandas as pd

_SUFFIX = ".safetensors"
#: The name of the best scaled identities among `scales`.
BEST = "best"
#: Prompts and points a side of `landscape_around`: on 800 prompts it looks the same and takes four times as long.
N_PROMPTS, _SIDE = 200, 50


def trainings() -> dict[str, Path]:
    """Return the files of trainings by their names: the bundled ones first, then those in `$AOTLENS_HOME/denoisers`."""
    bundled = [bundled_path(*key) for key in BUNDLED]
    made_here = sorted(user_folder("denoisers").glob(f"*{_SUFFIX}"))
    return {path.name.removesuffix(_SUFFIX): path for path in (*bundled, *made_here) if path.exists()}


def named_training(name: str) -> DenoiserTraining:
    """Return the training of that name among `trainings()`. Raises `ValueError` for a name that isn't there, which
    lists those that are, and for a file that cannot be read, which says why without its folder."""
    known = trainings()
    if name not in known:
        listed = ", ".join(known) or "none yet"
        raise ValueError(f"No training is called {name!r}. There are: {listed}. Choose one, or train it.")
    try:
        training: DenoiserTraining = load(known[name], DenoiserTraining)
        return training
    except (OSError, ValueError) as error:
        raise ValueError(f"The training {name} can't be read. {without_folder(error, known[name])}") from error


def train_and_keep(
    task: str,
    attention: str,
    *,
    epochs: int = 150,
    rate: float = 0.01,
    context: int = 499,
    prompts: int = 800,
    runs: int = 3,
    progress: Progress | None = None,
) -> DenoiserTraining:
    """Train layers on a task of `TASKS` and compare them with Bayes; a training with the same settings is not repeated.

    The result is saved in `$AOTLENS_HOME/denoisers` under `kept_name(...)`, and is then one of `trainings()`. `rate` is
    Adam's learning rate, `context` the number of tokens of a prompt, `runs` the number of seeds. `progress` counts
    epochs. Time: seconds for linear attention, minutes for softmax. Raises `ValueError` as `train_layers`, and for an
    unknown task, or where the file under this name is of other settings.
    """
    if task not in TASKS:
        raise ValueError(f"task={task!r}: expected one of {', '.join(TASKS)}.")
    name = kept_name(task, attention, epochs=epochs, rate=rate, context=context, prompts=prompts, runs=runs)
    settings = TrainingSettings(
        n_prompts=prompts, batch_size=next(size for size in (80, 50, 20, 10, 1) if prompts % size == 0),
        n_context=context, n_epochs=epochs, learning_rate=rate, n_test_prompts=min(prompts, 400),
    )  # fmt: skip
    if name in trainings():
        kept = named_training(name)
        if (kept.layers.settings, kept.layers.seeds) != (settings, tuple(range(runs))):
            raise ValueError(
                f"{trainings()[name].name}: expected a training with these settings, found another that has "
                "its name by chance. Change a setting a little, or move that file away."
            )
        return kept
    layers = train_layers(TASKS[task], attention, settings, seeds=range(runs), progress=progress)
    training = compare_with_bayes(layers, command="aotlens.denoise.train_and_keep")
    folder = user_folder("denoisers")
    folder.mkdir(parents=True, exist_ok=True)
    training.save(folder / f"{name}{_SUFFIX}")
    return training


def kept_name(task: str, attention: str, *, epochs: int, rate: float, context: int, prompts: int, runs: int) -> str:
    """Return the name under which `train_and_keep` saves a training with these settings."""
    settings = (
        f"TrainingRequest(task={task!r}, attention={attention!r}, epochs={epochs}, rate={rate}, context={context}, "
        f"prompts={prompts}, runs={runs})"  # hashed as by earlier versions, whose files keep their names
    )
    return f"{task}-{attention}-{epochs}-epochs-{hashlib.sha256(settings.encode()).hexdigest()[:6]}"


def scales(training: DenoiserTraining) -> dict[str, tuple[float | int, float | int]]:
    """Return named (α, β) of the best scaled identities and of runs that are not stuck, signs that flip together
    undone."""
    layers, best = training.layers, training.optimum
    points = {} if layers.kind == "linear" else {BEST: (best.alpha, best.beta)}
    rows = zip(layers.seeds, layers.alpha.tolist(), layers.beta.tolist(), layers.stuck.tolist(), strict=True)
    for seed, alpha, beta, stuck in rows:
        if not stuck:
            sign = -1 if alpha < 0 and beta < 0 else 1
            points[f"seed {seed}"] = (sign * alpha, sign * beta)
    return points


def landscape_around(training: DenoiserTraining) -> Landscape:
    """Return the loss of scaled identities over α and β as far as what a training found, on 200 prompts of its task, on
    a grid of 50 × 50 (*in-context-denoising* Figure 6)."""
    layers = training.layers
    points = [point for point in scales(training).values() if min(point) > 0] or [(1.0, 1.0)]
    ends = [1.6 * max(point[axis] for point in points) for axis in (0, 1)]
    prompts = layers.task.sample(N_PROMPTS, layers.settings.n_context, 2 * layers.seeds[0] + 1)
    alphas, betas = (torch.linspace(end / _SIDE, end, _SIDE, dtype=torch.float64) for end in ends)
    return landscape(prompts, alphas, betas, layers.kind)


@dataclass(frozen=True, kw_only=True)
class RunMatrices(Result):
    """The two matrices of one run, as they act before a transform."""

    seed: int
    W_QK: Float[Tensor, "n n"]
    W_OV: Float[Tensor, "n n"]

    def to_frame(self) -> pd.DataFrame:
        """Return one row a row of a matrix, with the matrix's name."""
        import pandas as pd

        matrices = {"W_QK": self.W_QK, "W_OV": self.W_OV}
        return pd.concat([pd.DataFrame(values.numpy()).assign(matrix=name) for name, values in matrices.items()])


def run_matrices(training: DenoiserTraining, seed: int | None = None) -> RunMatrices:
    """Return the matrices of the run of a seed, the first for None. Raises `ValueError` for a seed without a run."""
    layers = training.layers
    seed = layers.seeds[0] if seed is None else seed
    if seed not in layers.seeds:
        raise ValueError(f"seed={seed}: expected that of a run, {', '.join(map(str, layers.seeds))}.")
    W_QK, W_OV = (weights[layers.seeds.index(seed)] for weights in layers.plain)
    return RunMatrices(seed=seed, W_QK=W_QK, W_OV=W_OV)


@dataclass(frozen=True)
class FoundScales(Result):
    """The loss over α and β with what the runs of a training found."""

    landscape: Landscape
    points: Mapping[str, tuple[float | int, float | int]]
    """Named (α, β): the best, each run's, and the mean of several runs."""

    @property
    def headline(self) -> str:
        best = self.landscape.minimum
        return f"the least loss is {best.loss:.3g}, at α {best.alpha:.3g} and β {best.beta:.3g}"

    def to_frame(self) -> pd.DataFrame:
        """Return the loss, a row an α (the column `alpha`) and a column a β."""
        import pandas as pd

        losses = self.landscape
        frame = pd.DataFrame(losses.loss.numpy(), index=losses.alphas.tolist(), columns=losses.betas.tolist())
        return frame.rename_axis("alpha").reset_index()


def found_scales(training: DenoiserTraining, around: Landscape | None = None) -> FoundScales:
    """Collect the scales that the runs found in the loss over α and β, `landscape_around` the training for None."""
    points = scales(training)
    runs = [point for name, point in points.items() if name != BEST]
    if len(runs) > 1:
        alphas, betas = zip(*runs, strict=True)
        points["mean of the runs"] = (sum(alphas) / len(runs), sum(betas) / len(runs))
    return FoundScales(landscape_around(training) if around is None else around, points)
