"""Trainings of denoisers by name: those that are bundled, and those that a user has made; what they found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.checkpoints import user_folder
from aotlens.denoise.one_layer import Landscape, landscape
from aotlens.denoise.stored import BUNDLED, DenoiserTraining, bundled_path
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
