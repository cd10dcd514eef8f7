"""In-context denoising as views: a prompt in the plane and its energy; layers that were trained to denoise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.conventions import several
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, call, make
from aotlens.views.family import Family
from aotlens.views.parameters import Limit, OfNone
from aotlens.views.view import View

if TYPE_CHECKING:
    from aotlens.denoise import DenoiserTraining, DescentErrors, FoundScales, RunMatrices

#: Prompts over which errors are averaged, and those that the best scales are sought on.
N_PROMPTS = 400

#: Tasks in the plane, and energies, by the words for them.
TASKS = {"spheres": "circle", "subspaces": "line", "mixtures": "mixture"}
ENERGIES = {"memory": "softmax (memory)", "hopfield": "linear (Hopfield)"}
SCALES_OF = {"own": "as set below", "best": "the best of the task"}

#: Tasks and kinds of attention of new trainings; the value of `training` for a new one; and the default training.
TRAINED_TASKS = {name: name for name in ("subspaces", "spheres", "mixtures")}
ATTENTIONS = {name: name for name in ("linear", "softmax")}
NEW, FIRST = "new", "subspaces-softmax"


@dataclass(frozen=True, kw_only=True)
class DenoisingParameters(OfNone):
    """A prompt in the plane (its task, its energy, and how its query descends in it), and a training of layers.

    The defaults are those of Figure 5, except for the noise (it prints σ² = 10, and R = 1). Those of a new training are
    the paper's, except for epochs and rate, which it does not give, and runs.
    """

    task: str = declare.choice(TASKS, label="Task")
    energy: str = declare.choice(ENERGIES, label="Attention and its energy")
    tokens: int = declare.whole(20, least=1, most=200, label="Context tokens L")
    noise: float = declare.real(0.1, 0.01, 2.0, step=0.01, label="Noise σ² of the query")
    components: int = declare.whole(3, least=1, most=8, label="Components of the mixture")
    scales: str = declare.choice(SCALES_OF, label="α and β")
    alpha: float = declare.real(1.0, 0.05, 4.0, step=0.05, label="α (W_OV = α I)")
    beta: float = declare.real(10.0, 0.1, 40.0, step=0.1, label="β (W_QK = β I)")
    share: float = declare.real(1.0, 0.05, 2.0, step=0.05, label="Step size, in attention’s")
    """γ ÷ the γ at which a step is the attention layer."""
    steps: int = declare.whole(20, least=1, most=60, label="Steps")
    seed: int = declare.whole(0, most=99, label="Seed")
    query: tuple[float, ...] | None = declare.reals(
        most=2, label="Query, as x, y", blank="as drawn", cleared_by=("task", "seed"), page_only=True
    )
    training: str | None = declare.option("Training", blank=FIRST)
    run: int | None = declare.row("Run (seed)", blank="the first")
    trained_on: str = declare.choice(TRAINED_TASKS, label="Task of the new training", first="spheres")
    attention: str = declare.choice(ATTENTIONS, label="Attention of a trained layer")
    epochs: int = declare.whole(150, least=1, most=500, label="Epochs")
    rate: float = declare.real(0.01, 0.001, 0.1, step=0.001, label="Learning rate of Adam")
    context: int = declare.whole(499, least=10, most=499, label="Context tokens L of a prompt")
    prompts: int = declare.real(800, 50, 800, step=50, label="Prompts")
    runs: int = declare.whole(3, least=1, most=6, label="Runs (seeds)")

    def limits(self) -> Mapping[str, Limit]:
        limits = {"training": Limit(options=trainings_by_name())}
        limits["run"] = Limit(options={seed: str(seed) for seed in self.seeds}, off=not self.seeds)
        limits["components"] = Limit(hidden=self.task != "mixtures")
        limits |= dict.fromkeys(("alpha", "beta"), Limit(hidden=self.scales == "best"))
        return limits | dict.fromkeys(("trained_on", "attention", *_SETTINGS), Limit(hidden=self.training != NEW))

    def file(self, what: str) -> str:
        """Name a file of `what`."""
        scales = "best" if self.scales == "best" else f"alpha{self.alpha:g}-beta{self.beta:g}"
        return f"denoising-{self.task}-{self.energy}-L{self.tokens}-noise{self.noise:g}-{scales}-seed{self.seed}-{what}"

    @property
    def drawn_from(self) -> Call:
        """The task: a line, the circle of radius 1, or components on that circle."""
        if self.task == "spheres":
            return make("aotlens.denoise.Spheres", n=2, d=1, radius=1.0, noise_variance=self.noise).named("task")
        if self.task == "subspaces":
            line = make("aotlens.denoise.LinearSubspaces", n=2, d=1, signal_variance=1.0, noise_variance=self.noise)
            return line.named("task")
        return make(
            "aotlens.denoise.GaussianMixtures", n=2, n_components=self.components, radius=1.0, component_variance=0.02,
            noise_variance=self.noise,
        ).named("task")  # fmt: skip

    @property
    def many(self) -> Call:
        """The prompts over which errors are averaged; none of them is the one that is shown."""
        return self.drawn_from.method("sample", N_PROMPTS, self.tokens, 1000 + self.seed).named("prompts")

    @property
    def way(self) -> dict[str, Any]:
        """The settings by which queries go down."""
        alpha: Any = self.alpha
        beta: Any = self.beta
        if self.scales == "best":
            best = call("aotlens.denoise.best_scale", self.drawn_from, self.many, self.energy).named("best")
            alpha, beta = best.part("alpha"), best.part("beta")
        return {"energy": self.energy, "alpha": alpha, "beta": beta, "n_steps": self.steps}

    @property
    def trained(self) -> str:
        """The name of the training."""
        if self.training != NEW:
            return self.training or FIRST
        from aotlens.denoise.stored import kept_name

        return kept_name(self.trained_on, self.attention, **self.settings)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of a new training."""
        return {name: getattr(self, name) for name in _SETTINGS}

    @property
    def path(self) -> Path | None:
        """The file of the training; None for a new one that has not been made."""
        from aotlens.denoise import trainings

        return trainings().get(self.trained)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the runs; none if the file cannot be read."""
        if self.training == NEW:
            return tuple(range(self.runs))
        path = self.path
        return () if path is None else _seeds(self.trained, path.stat().st_mtime_ns)

    @property
    def seed_of_run(self) -> int | None:
        """The seed of the run whose matrices are shown, by default the first."""
        return self.run if self.run in self.seeds else next(iter(self.seeds), None)

    @property
    def record(self) -> Call:
        """The training: loaded by its name, or made."""
        if self.training == NEW:
            made = call("aotlens.denoise.train_and_keep", self.trained_on, self.attention, **self.settings)
            return made.named("training")
        path = self.path
        stamp = 0 if path is None else path.stat().st_mtime_ns
        return call("aotlens.denoise.named_training", self.trained).named("training").stamped(stamp)


_SETTINGS = ("epochs", "rate", "context", "prompts", "runs")


def trainings_by_name() -> dict[str, str]:
    """Return the words for every training that exists, the default one first, and for a new one."""
    from aotlens.denoise import trainings

    names = sorted(trainings(), key=lambda name: name != FIRST)
    return {**{name: name.replace("-", " ") for name in names}, NEW: "a new training"}


@lru_cache(maxsize=64)
def _seeds(name: str, stamp: int) -> tuple[int, ...]:
    from aotlens.denoise import named_training

    try:
        return named_training(name).layers.seeds
    except ValueError:  # the call raises it, too
        return ()


def _plane(params: DenoisingParameters) -> Call:
    put = {} if params.query is None else {"query": (*params.query, 0.0)[:2]}
    return call(
        "aotlens.denoise.descend_in_plane", params.drawn_from, params.tokens, params.seed, **params.way,
        share=params.share, **put,
    )  # fmt: skip


def _errors(params: DenoisingParameters) -> Call:
    mean = call("aotlens.denoise.descend_by_share", params.drawn_from, params.many, params.share, **params.way)
    return make("aotlens.denoise.DescentErrors", mean.named("mean"), _plane(params).named("shown").part("descent"))


def _of_errors(params: DenoisingParameters, result: DescentErrors) -> str:
    mean, curve = result.mean, result.mean.errors.mean(1)
    query, layer, bayes = float(curve[0]), float(mean.attention_errors.mean()), float(mean.bayes_errors.mean())
    best, last = int(curve.argmin()), len(curve) - 1
    scales = f"The best scales are α = {mean.alpha:.3g} and β = {mean.beta:.3g}. " if params.scales == "best" else ""
    sentences = scales + (
        f"Mean squared error over {N_PROMPTS} prompts: {query:.3g} at the query, {layer:.3g} after one step of "
        f"attention, {float(curve[last]):.3g} after {several(last, 'step')} of descent, {bayes:.3g} by Bayes."
    )
    if params.energy == "hopfield" and float(curve[last]) > 100 * query:
        return f"{sentences} Contexts whose largest second moment is above 1/αβ drive the state to infinity."
    if layer > query:
        return f"{sentences} At these α and β attention makes it worse."
    if best < last and float(curve[last]) > 1.02 * float(curve[best]):
        return f"{sentences} Iterating is best stopped after {several(best, 'step')}."
    return sentences


PLANE = View(
    name="plane",
    title="Energy of the context",
    about="The deeper the colour, the lower the energy of this context. White: its tokens. Drag the query, click "
    "another place, or move it with the arrow keys once the picture has the focus. Arrow: one step of attention. Line: "
    "gradient descent in steps of γ. Bayes: the best answer of somebody who knows the circle, line or mixture. Clean: "
    "the token that the query was drawn from. With scaled identities as weights, one step of gradient descent on an "
    "energy of the tokens, from the query, is the attention layer. Further steps are another algorithm, a Hopfield "
    "network, and on average a worse estimate: they lead to a minimum of the energy, wherever the query came from.",
    formula="softmax: E(s) = ‖s‖²/2α − (1/β) log Σ exp(β xₜ·s), step γ = α;  linear: E(s) = ‖s‖²/2γ − sᵀ(XᵀX/L)s/2, "
    "step γ = αβ",
    source="in-context-denoising: Equations 16, 17 and A.15 (which gives no step size), Figure 5.",
    call=_plane,
    file=lambda params: params.file("plane"),
)
ERRORS = View(
    name="errors",
    title="Errors by step",
    about=f"Squared distance to the clean token after each step: the mean over {N_PROMPTS} prompts with these "
    "parameters, and this query. Levels are means over the same prompts: of attention’s one step (which is the "
    "curve’s first step where the step size is attention’s), and of Bayes, which no estimate can beat on average. "
    "A prompt draws a distribution of its own (a circle of radius 1, a line through 0 with variance 1, or "
    "Gaussians with variance 0.02 around points of the circle), then L clean tokens and a query: a further token "
    "with noise. The layer reads the tokens and the query, and estimates the clean token.",
    formula="‖s(t) − x‖²",
    call=_errors,
    caption=_of_errors,
    file=lambda params: params.file("errors"),
)

# ── trained layers ──────────────────────────────────────────────────────────────────────────────────────────────

#: The paper's statements about its own runs (Figure 3 and its text), by task and attention.
_PAPER = {
    "LinearSubspaces linear": "αβ = 0.327",
    "LinearSubspaces softmax": "β = 0.194, α = 1.607",
    "GaussianMixtures softmax": "β = 5.127, α ≈ 1",
}
_KINDS = {"LinearSubspaces": "subspaces", "Spheres": "spheres", "GaussianMixtures": "mixtures"}


def _of_curves(params: DenoisingParameters, record: DenoiserTraining) -> str:
    layers, frame = record.layers, record.to_frame()
    good = frame[~frame.stuck]
    n_stuck = len(frame) - len(good)
    end = frame.test_loss if not len(good) else good.test_loss
    kind = _KINDS[type(layers.task).__name__]
    sentence = (
        f"{several(len(frame), 'run')} of {layers.kind} attention on "
        f"{kind if layers.transform is None else f'transformed {kind}'}, {several(layers.settings.n_epochs, 'epoch')}: "
        f"test loss {_spread(end, 4)} a prompt; Bayes {record.bayes.value:.4g}, the best scaled identities "
        f"{record.optimum.loss:.4g}, zero {record.baselines['zero']:.4g}."
    )
    return f"{sentence} {several(n_stuck, 'run')} stuck and left out." if n_stuck else sentence


def of_scales(record: DenoiserTraining) -> str:
    """Say the mean diagonals that the runs found, in a sentence; nothing where all are stuck."""
    from aotlens.denoise.stored import BEST, scales

    layers, best = record.layers, record.optimum
    points = [point for name, point in scales(record).items() if name != BEST]
    if not points:
        return ""
    alpha, beta = (np.array(values) for values in zip(*points, strict=True))
    if layers.kind == "linear":
        text = f"αβ = {_spread(alpha * beta, 3)}; the best is {best.beta:.4g}"
    else:
        text = f"β = {_spread(beta, 3)}, α = {_spread(alpha, 3)}; the best are {best.beta:.3g} and {best.alpha:.3g}"
    paper = _PAPER.get(f"{type(layers.task).__name__} {layers.kind}")
    theirs = f" (the paper’s: {paper})" if paper and layers.transform is None else ""
    return f"Mean diagonals found: {text}{theirs}."


def _of_matrices(params: DenoisingParameters, result: RunMatrices) -> str:
    return f"{params.trained}, the run of seed {result.seed}."


def _of_found(params: DenoisingParameters, result: FoundScales) -> str:
    return f"{params.trained}: {result.headline}, on a scan of β."


def _spread(values: Any, digits: int) -> str:
    low, high = values.min(), values.max()
    mean = f"{values.mean():.{digits}g}"
    return mean if len(values) == 1 else f"{mean} ({low:.{digits}g} to {high:.{digits}g})"


def _of_training(name: str, title: str, **rest: Any) -> View:
    """A view of a training, which the view of its losses starts if it is a new one."""
    usual = {
        "call": lambda params: params.record,
        "file": lambda params: f"{params.trained}-{name}",
        "slow": "epochs",
        "slow_part": lambda params: params.record,
        "cost": lambda params: float(params.path is not None),
        "made_by": "curves",
    }
    return View(name=name, title=title, **{**usual, **rest})


CURVES = _of_training(
    "curves",
    "Loss by epoch",
    about="Squared error a prompt after each epoch, in training and on prompts kept apart: the mean over runs, in a "
    "band that holds all runs. Levels: the zero predictor, and Bayes on the same test prompts, which knows what each "
    "prompt was drawn from and which nothing beats on average. One layer of linear or softmax attention, trained from "
    "random weights to estimate the clean token: two matrices of 16 × 16, on prompts of subspaces (d = 8), spheres (d "
    "= 8) or Gaussian mixtures (8 components). Training finds scaled identities, W_QK ≈ β I and W_OV ≈ α I, which the "
    "Bayes predictors suggest. In a run that is stuck, the diagonals have both signs: some directions were inverted at "
    "the start and did not come back. Losses are summed over the 16 coordinates. A new training trains all its runs at "
    "once and is kept (in $AOTLENS_HOME/denoisers): linear attention takes seconds, softmax attention minutes, in "
    "proportion to epochs, prompts, tokens and runs.",
    formula="linear: x̂ = (1/L) x̃ W_QK Xᵀ X W_OV;  softmax: x̂ = softmax(x̃ W_QK Xᵀ) X W_OV",
    source="in-context-denoising: Equations 11 and 12, Figures 3 (a), there divided by n = 16, 7 and 8; tokens as "
    "rows.",
    caption=_of_curves,
    table="loss_frame",
    made_by="",
)
MATRICES = _of_training(
    "matrices",
    "Learned matrices",
    about="The run’s two matrices, each next to the scaled identity with its mean diagonal, on one colour scale a row. "
    "Of a training on transformed prompts they are those that act before the transform, Aᵀ W_QK A and Aᵀ W_OV, which "
    "are scaled identities where the layer undoes A.",
    source="in-context-denoising, Figures 3 (b) and 8.",
    caption=_of_matrices,
    call=lambda params: make("aotlens.denoise.run_matrices", params.record, params.seed_of_run),
)
SCALES = _of_training(
    "scales",
    "Loss over α and β",
    about="The loss of scaled identities on 200 prompts of the task, on a grid of 50 × 50, the deeper the colour the "
    "lower; the best α of each β as a dotted line, and what the runs found (this one, and their mean). Signs that flip "
    "together are undone, since that is the same layer where attention is linear, and nearly so on tokens that are "
    "symmetric around 0; stuck runs are left out. Linear attention depends on the product αβ only, so that its valley "
    "is a hyperbola.",
    source="in-context-denoising, Figure 6.",
    caption=_of_found,
    call=lambda params: make(
        "aotlens.denoise.found_scales", params.record, call("aotlens.denoise.landscape_around", params.record)
    ),
    drawn=lambda params: {"run": params.seed_of_run},
)
RUNS = _of_training(
    "runs",
    "All runs",
    about="Mean diagonals and the share off the diagonal, ‖W − diag W‖ ÷ ‖diag W‖; losses a prompt after the last "
    "epoch, in training and on the test prompts. Click a seed to show its matrices.",
    caption=lambda params, record: of_scales(record),
    pictured=False,
)

FAMILY = Family(
    "denoising",
    "The descent of a query of a prompt in the plane in the energy of its context, and layers trained to denoise: is "
    "one step of attention enough?",
    (ERRORS, PLANE, CURVES, MATRICES, SCALES, RUNS),
    DenoisingParameters,
)
