"""Trained denoisers beside Bayes and the simpler estimators: on disk, and the paper's trainings that are bundled.

    aotlens.denoise.stored("subspaces", "softmax").to_frame()

The bundled ones are Figure 3, Figure 7 and Figure 8 of *in-context-denoising*: linear and softmax attention on each of
the three tasks, and both on subspaces whose prompts are transformed (Appendix H), six seeds each. They were made by
`python -m analyses.bundle_denoisers`. A file is safetensors with JSON in its header and a hash of both; never pickle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_seed
from aotlens.denoise.bayes import BASELINES, ExpectedLoss, bayes_loss, squared_errors
from aotlens.denoise.one_layer import Scale, landscape, optimal_linear_scale
from aotlens.denoise.tasks import TASKS
from aotlens.denoise.training import TrainedLayers, TrainingSettings, sample_test_prompts, train_layers
from aotlens.results import Result, load

if TYPE_CHECKING:
    import pandas as pd

#: β of softmax attention that the best scaled identity is looked for among.
_BETAS = torch.logspace(-2, 1.5, 141, dtype=torch.float64)

#: The trainings that are bundled: task, attention, whether prompts are transformed, and their settings. The paper gives
#: no learning rate and no number of epochs for Figure 3; Figure 8 takes its 500 epochs.
BUNDLED: dict[tuple[str, str, bool], TrainingSettings] = {
    ("subspaces", "linear", False): TrainingSettings(n_epochs=150),
    ("subspaces", "softmax", False): TrainingSettings(n_epochs=150),
    ("spheres", "linear", False): TrainingSettings(n_epochs=150),
    ("spheres", "softmax", False): TrainingSettings(n_epochs=150),
    ("mixtures", "linear", False): TrainingSettings(n_epochs=200, learning_rate=0.02),
    ("mixtures", "softmax", False): TrainingSettings(n_epochs=200, learning_rate=0.02),
    ("subspaces", "linear", True): TrainingSettings(n_epochs=500),
    ("subspaces", "softmax", True): TrainingSettings(n_epochs=500),
}


@dataclass(frozen=True, kw_only=True)
class DenoiserTraining(Result):
    """Trained layers and what their losses are held against."""

    layers: TrainedLayers
    """Curves, matrices, mean diagonals α and β, off-diagonal shares, and which runs are stuck, a run for each seed."""
    bayes: ExpectedLoss
    """The least expected loss of the task."""
    baselines: dict[str, float]
    """The mean loss of every baseline of the task (`BASELINES`, Bayes among them) on the curves' own test prompts."""
    optimum: Scale
    """The best scaled identities at this context length: linear attention's product in closed form, else a scan of β on
    the test prompts."""
    command: str = ""
    """The command that made it; empty where it was not stored."""

    @property
    def headline(self) -> str:
        return f"{self.layers.headline}, Bayes {self.bayes.value:.3g}"

    def loss_frame(self) -> pd.DataFrame:
        """Return the layers' losses by epoch."""
        return self.layers.loss_frame()

    def to_frame(self) -> pd.DataFrame:
        """Return one row a run, as of `TrainedLayers`, with the least test loss on the way and the epochs to it."""
        frame = self.layers.to_frame()
        frame["least_test_loss"] = self.layers.test_loss.min(1).values.tolist()
        frame["epochs_to_least"] = self.layers.test_loss.argmin(1).tolist()
        return frame


def compare_with_bayes(layers: TrainedLayers, *, command: str = "") -> DenoiserTraining:
    """Put trained layers beside the Bayes loss, the baselines and the best scaled identities of their task.

    Baselines and scan are measured on the layers' own test prompts, before a transform (which changes neither).
    Time: O(test prompts · L · n · 141) for the scan of β.
    """
    prompts = sample_test_prompts(layers.task, layers.settings, layers.seeds)
    baselines = {}
    for name, baseline in BASELINES.items():
        if name == "projection" and prompts.bases is None:  # a mixture's tokens span everything
            continue
        baselines[name] = float(squared_errors(baseline(layers.task, prompts), prompts).mean())
    if layers.kind == "linear":
        optimum = optimal_linear_scale(layers.task, layers.settings.n_context)
    else:
        optimum = landscape(prompts, torch.ones(1, dtype=torch.float64), _BETAS, layers.kind).minimum
    bayes = bayes_loss(layers.task)
    return DenoiserTraining(layers=layers, bayes=bayes, baselines=baselines, optimum=optimum, command=command)


def random_transform(n: int, seed: int = 0) -> Float[Tensor, "n n"]:
    """Return an invertible A for Appendix H: a random rotation times scales from 1/2 to 2 times another rotation,
    float64.

    The paper shows its A (Figure 8a) and gives no numbers; the condition number here is 4.
    """
    generator = torch.Generator().manual_seed(require_seed(seed))
    left, right = torch.linalg.qr(torch.randn(2, n, n, dtype=torch.float64, generator=generator)).Q
    return left @ torch.diag(torch.logspace(-1, 1, n, base=2, dtype=torch.float64)) @ right


def train_bundled(
    task: str, attention: str, *, transformed: bool = False, progress: Callable[[int, int], None] | None = None
) -> DenoiserTraining:
    """Train again what `stored` returns. Raises `ValueError` for what is not bundled."""
    settings = BUNDLED[_bundled_key(task, attention, transformed)]
    transform = random_transform(TASKS[task].n) if transformed else None
    layers = train_layers(TASKS[task], attention, settings, transform=transform, progress=progress)
    return compare_with_bayes(layers, command="python -m analyses.bundle_denoisers")


def stored(task: str, attention: str, *, transformed: bool = False) -> DenoiserTraining:
    """Return the bundled training of a task of `TASKS` and a kind of attention, six seeds.

    `transformed` is Figure 8's, on subspaces only. Raises `ValueError` for what is not bundled.
    """
    training: DenoiserTraining = load(bundled_path(*_bundled_key(task, attention, transformed)), DenoiserTraining)
    return training


def bundled_path(task: str, attention: str, transformed: bool = False) -> Path:
    """Return the path of a bundled training in the package."""
    return Path(__file__).parent / "bundled" / f"{task}-{attention}{'-transformed' * transformed}.safetensors"


def _bundled_key(task: str, attention: str, transformed: bool) -> tuple[str, str, bool]:
    key = (task, attention, transformed)
    if key not in BUNDLED:
        known = ", ".join(f"{t} {a}{' transformed' * on}" for t, a, on in BUNDLED)
        raise ValueError(f"no training of {task!r} with {attention!r} (transformed={transformed}) is bundled: {known}.")
    return key
