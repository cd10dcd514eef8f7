"""Trained denoisers, compared with Bayes and simpler estimators, and audits of trained models: on disk, and bundled
ones.

    aotlens.denoise.stored("subspaces", "softmax").to_frame()
    aotlens.denoise.stored_audit("novels-12l-mssa").audit.to_frame()

The bundled trainings are Figure 3, Figure 7 and Figure 8 of *in-context-denoising*: linear and softmax attention on
each of the three tasks, and both on subspaces whose prompts are transformed (Appendix H), six seeds each. They were
made by `python -m analyses.bundle_denoisers`.

The bundled audits were made by `aotlens audit NAME --corpus SPEC --out FILE` on documents that were held out from the
training. Each file has the windows that were read, so that `audit(aotlens.load(NAME), record.tokens)` measures the same
again without the corpus. A file is safetensors with JSON in its header and a hash of both; never pickle.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from aotlens.checkpoints import user_folder
from aotlens.conventions import Progress, require_choice, require_seed
from aotlens.denoise.audit import DenoisingAudit
from aotlens.denoise.bayes import BASELINES, ExpectedLoss, bayes_loss, squared_errors
from aotlens.denoise.one_layer import Landscape, Scale, landscape, optimal_linear_scale
from aotlens.denoise.tasks import TASKS
from aotlens.denoise.training import TrainedLayers, TrainingSettings, sample_test_prompts, train_layers
from aotlens.files import without_folder
from aotlens.results import OfCheckpoint, Result, data_frame, find_stored, load, stored_path
from aotlens.results import stored as stored_result

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.checkpoints import CheckpointInfo


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
    """Trained layers, and the losses that theirs are compared with."""

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
        """Return one row per run, as of `TrainedLayers`, with the least test loss on the way and the epochs to it."""
        frame = self.layers.to_frame()
        frame["least_test_loss"] = self.layers.test_loss.min(1).values.tolist()
        frame["epochs_to_least"] = self.layers.test_loss.argmin(1).tolist()
        return frame


def compare_with_bayes(layers: TrainedLayers, *, command: str = "") -> DenoiserTraining:
    """Compare trained layers with the Bayes loss, the baselines and the best scaled identities of their task.

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
    training: DenoiserTraining = stored_result("denoiser", bundled_name(*_bundled_key(task, attention, transformed)))
    return training


def bundled_name(task: str, attention: str, transformed: bool = False) -> str:
    """Return the name of a bundled training."""
    return f"{task}-{attention}{'-transformed' * transformed}"


def _bundled_key(task: str, attention: str, transformed: bool) -> tuple[str, str, bool]:
    key = (task, attention, transformed)
    if key not in BUNDLED:
        known = ", ".join(f"{t} {a}{' transformed' * on}" for t, a, on in BUNDLED)
        raise ValueError(f"no training of {task!r} with {attention!r} (transformed={transformed}) is bundled: {known}.")
    return key


_SUFFIX = ".safetensors"
#: The name of the best scaled identities among `scales`.
BEST = "best"
#: Prompts and points a side of `landscape_around`: on 800 prompts it looks the same and takes four times as long.
N_PROMPTS, _SIDE = 200, 50


def trainings() -> dict[str, Path]:
    """Return the files of trainings by their names: the bundled ones first, then those in `$AOTLENS_HOME/denoisers`."""
    bundled = [stored_path("denoiser", bundled_name(*key)) for key in BUNDLED]
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
    require_choice("task", task, TASKS)
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
        """Return the rows of both matrices, with the matrix's name."""
        import pandas as pd

        matrices = {"W_QK": self.W_QK, "W_OV": self.W_OV}
        return pd.concat([pd.DataFrame(values.numpy()).assign(matrix=name) for name, values in matrices.items()])


def run_matrices(training: DenoiserTraining, seed: int | None = None) -> RunMatrices:
    """Return the matrices of the run of a seed, the first for None. Raises `ValueError` for a seed without a run."""
    layers = training.layers
    seed = layers.seeds[0] if seed is None else seed
    require_choice("seed", seed, layers.seeds)
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
        """Return the loss, a row per α (the column `alpha`) and a column per β."""
        losses = self.landscape
        frame = data_frame(losses.loss.numpy(), index=losses.alphas.tolist(), columns=losses.betas.tolist())
        return frame.rename_axis("alpha").reset_index()


def found_scales(training: DenoiserTraining, around: Landscape | None = None) -> FoundScales:
    """Collect the scales that the runs found in the loss over α and β, `landscape_around` the training for None."""
    points = scales(training)
    runs = [point for name, point in points.items() if name != BEST]
    if len(runs) > 1:
        alphas, betas = zip(*runs, strict=True)
        points["mean of the runs"] = (sum(alphas) / len(runs), sum(betas) / len(runs))
    return FoundScales(landscape_around(training) if around is None else around, points)


@dataclass(frozen=True, kw_only=True, eq=False)
class AuditRecord(OfCheckpoint):
    """An audit and what it was made on."""

    audit: DenoisingAudit
    tokens: Int64[Tensor, "window pos"]
    """The windows that were read."""
    seed: int
    """The seed of the rotations and random groups."""
    schema_version: ClassVar[int] = 3

    @property
    def headline(self) -> str:
        return f"{self.checkpoint}: {self.audit.headline}"


def stored_audit(checkpoint: str) -> AuditRecord:
    """Return the bundled audit of a bundled checkpoint. Raises `ValueError` for a checkpoint that has none, and for a
    file that cannot be read."""
    record: AuditRecord = stored_result("audit", checkpoint)
    return record


def find_audit(info: CheckpointInfo) -> AuditRecord | None:
    """Return `aotlens.results.find_stored("audit", info)`. The name goes with the next release."""
    record: AuditRecord | None = find_stored("audit", info)
    return record
