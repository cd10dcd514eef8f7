"""In-context denoising as views: a prompt in the plane and its energy; layers that were trained to denoise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.views.calls import Call, call, make
from aotlens.views.family import Choice, Family
from aotlens.views.view import About, Parameter, View

if TYPE_CHECKING:
    from aotlens.denoise import DenoiserTraining, DescentErrors, FoundScales, PlaneDescent, RunMatrices

#: Prompts over which errors are averaged, and those that the best scales are sought on.
N_PROMPTS = 400

#: Tasks in the plane, and energies, by the words for them.
TASKS = {"spheres": "circle", "subspaces": "line", "mixtures": "mixture"}
ENERGIES = {"memory": "softmax (associative memory)", "hopfield": "linear (spherical Hopfield)"}

#: The parameters of a prompt in the plane. The first values are Figure 5's, but for the noise (it prints σ² = 10, and R
#: = 1).
PARAMETERS = {
    "tokens": Parameter("Context tokens L", 20, least=1, most=200),
    "noise": Parameter("Noise σ² of the query", 0.1, least=0.01, most=2.0, step=0.01),
    "components": Parameter("Components of the mixture", 3, least=1, most=8),
    "alpha": Parameter("α (W_OV = α I)", 1.0, least=0.05, most=4.0, step=0.05),
    "beta": Parameter("β (W_QK = β I)", 10.0, least=0.1, most=40.0, step=0.1),
    "share": Parameter("Step size, in attention’s", 1.0, least=0.05, most=2.0, step=0.05),
    "steps": Parameter("Steps", 20, least=1, most=60),
    "seed": Parameter("Seed", 0, least=0, most=99),
}


@dataclass(frozen=True, kw_only=True)
class InPlane:
    """A prompt in the plane: its task, its energy, and how its query goes down."""

    task: str = "spheres"
    energy: str = "memory"
    tokens: int = 20
    noise: float | int = 0.1
    components: int = 3
    """The number of components, of mixtures only."""
    alpha: float | int = 1.0
    beta: float | int = 10.0
    share: float | int = 1.0
    """γ ÷ the γ at which a step is the attention layer."""
    steps: int = 20
    seed: int = 0
    query: tuple[float | int, ...] | None = None
    """The place where somebody has put the query; None: as it was drawn."""

    def file(self, what: str) -> str:
        """Name a file of `what`."""
        return (
            f"denoising-{self.task}-{self.energy}-L{self.tokens}-noise{self.noise:g}-alpha{self.alpha:g}-"
            f"beta{self.beta:g}-seed{self.seed}-{what}"
        )

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
        return {"energy": self.energy, "alpha": self.alpha, "beta": self.beta, "n_steps": self.steps}


def _plane(chosen: InPlane) -> Call:
    put = {} if chosen.query is None else {"query": (*chosen.query, 0.0)[:2]}
    return call(
        "aotlens.denoise.descend_in_plane", chosen.drawn_from, chosen.tokens, chosen.seed, **chosen.way,
        share=chosen.share, **put,
    )  # fmt: skip


def _errors(chosen: InPlane) -> Call:
    mean = call("aotlens.denoise.descend_by_share", chosen.drawn_from, chosen.many, chosen.share, **chosen.way)
    return make("aotlens.denoise.DescentErrors", mean.named("mean"), _plane(chosen).named("shown").part("descent"))


def _of_plane(chosen: InPlane, result: PlaneDescent) -> str:
    descent = result.descent
    return (
        f"This query: {float(descent.errors[0, 0]):.3g} from the clean token (squared), attention "
        f"{float(descent.attention_errors[0]):.3g}, after {_steps(len(descent.errors) - 1)} "
        f"{float(descent.errors[-1, 0]):.3g}, Bayes {float(descent.bayes_errors[0]):.3g}."
    )


def _of_errors(chosen: InPlane, result: DescentErrors) -> str:
    mean, curve = result.mean, result.mean.errors.mean(1)
    query, layer, bayes = float(curve[0]), float(mean.attention_errors.mean()), float(mean.bayes_errors.mean())
    best, last = int(curve.argmin()), len(curve) - 1
    sentences = (
        f"Mean squared error over {N_PROMPTS} prompts: {query:.3g} at the query, {layer:.3g} after one step of "
        f"attention, {float(curve[last]):.3g} after {_steps(last)} of descent, {bayes:.3g} by Bayes."
    )
    if chosen.energy == "hopfield" and float(curve[last]) > 100 * query:
        return f"{sentences} Contexts whose largest second moment is above 1/αβ drive the state to infinity."
    if layer > query:
        return f"{sentences} At these α and β attention makes it worse."
    if best < last and float(curve[last]) > 1.02 * float(curve[best]):
        return f"{sentences} Iterating is best stopped after {_steps(best)}."
    return sentences


def _steps(number: int) -> str:
    return f"{number} step{'' if number == 1 else 's'}"


PLANE = View(
    name="plane",
    title="Energy of the context",
    about=About(
        text="The deeper the colour, the lower the energy of this context. White: its tokens. Drag the query, click "
        "another place, or move it with the arrow keys once the picture has the focus. Arrow: one step of attention. "
        "Line: gradient descent in steps of the chosen size. Bayes: the best answer of somebody who knows the circle, "
        "line or mixture. Clean: the token that the query was drawn from.",
        source="in-context-denoising, Figure 5.",
    ),
    call=_plane,
    caption=_of_plane,
    file=lambda chosen: chosen.file("plane"),
)
ERRORS = View(
    name="errors",
    title="Errors by step",
    about=About(
        text=f"Squared distance to the clean token after each step: the mean over {N_PROMPTS} prompts with these "
        "parameters, and this query. Levels are means over the same prompts: of attention’s one step (which is the "
        "curve’s first step where the step size is attention’s), and of Bayes, which no estimate can beat on average.",
        formula="‖s(t) − x‖²",
    ),
    call=_errors,
    caption=_of_errors,
    file=lambda chosen: chosen.file("errors"),
)

FAMILY = Family(
    name="denoising",
    about="The descent of a query of a prompt in the plane in the energy of its context: is one step of attention "
    "enough?",
    views=(ERRORS, PLANE),
    values=InPlane,
    parameters={"task": Choice("Task", TASKS), "energy": Choice("Energy", ENERGIES), **PARAMETERS},
)

# ── trained layers ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A training by its name, and the seed of the run whose matrices are shown."""

    training: str
    run: int
    stamp: int = 0
    """The mark that tells a file of that name from another."""

    @property
    def record(self) -> Call:
        """The training."""
        return call("aotlens.denoise.named_training", self.training).named("training").stamped(self.stamp)


#: The paper's statements about its own runs (Figure 3 and its text), by task and attention.
_PAPER = {
    "LinearSubspaces linear": "αβ = 0.327",
    "LinearSubspaces softmax": "β = 0.194, α = 1.607",
    "GaussianMixtures softmax": "β = 5.127, α ≈ 1",
}
_KINDS = {"LinearSubspaces": "subspaces", "Spheres": "spheres", "GaussianMixtures": "mixtures"}


def _of_curves(chosen: Trained, record: DenoiserTraining) -> str:
    layers, frame = record.layers, record.to_frame()
    good = frame[~frame.stuck]
    n_stuck = len(frame) - len(good)
    end = frame.test_loss if not len(good) else good.test_loss
    kind = _KINDS[type(layers.task).__name__]
    sentence = (
        f"{_count(len(frame), 'run')} of {layers.kind} attention on "
        f"{kind if layers.transform is None else f'transformed {kind}'}, {_count(layers.settings.n_epochs, 'epoch')}: "
        f"test loss {_spread(end, 4)} a prompt; Bayes {record.bayes.value:.4g}, the best scaled identities "
        f"{record.optimum.loss:.4g}, zero {record.baselines['zero']:.4g}."
    )
    return f"{sentence} {_count(n_stuck, 'run')} stuck and left out." if n_stuck else sentence


def of_scales(record: DenoiserTraining) -> str:
    """Say the mean diagonals that the runs found, in a sentence; nothing where all are stuck."""
    from aotlens.denoise.kept import BEST, scales

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


def _of_matrices(chosen: Trained, result: RunMatrices) -> str:
    return f"{chosen.training}, the run of seed {result.seed}."


def _of_found(chosen: Trained, result: FoundScales) -> str:
    return f"{chosen.training}: {result.headline}, on a scan of β."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _spread(values: Any, digits: int) -> str:
    low, high = values.min(), values.max()
    mean = f"{values.mean():.{digits}g}"
    return mean if len(values) == 1 else f"{mean} ({low:.{digits}g} to {high:.{digits}g})"


CURVES = View(
    name="curves",
    title="Loss by epoch",
    about=About(
        text="Squared error a prompt after each epoch, in training and on prompts kept apart: the mean over runs, in a "
        "band that holds all runs. Levels: the zero predictor, and Bayes on the same test prompts, which knows what "
        "each prompt was drawn from and which nothing beats on average.",
        source="in-context-denoising, Figure 3 (a), there divided by n = 16.",
    ),
    call=lambda chosen: chosen.record,
    caption=_of_curves,
    file=lambda chosen: f"{chosen.training}-curves",
    table="loss_frame",
)
MATRICES = View(
    name="matrices",
    title="Learned matrices",
    about=About(
        text="The chosen run’s two matrices, each beside the scaled identity with its mean diagonal, on one colour "
        "scale a row. Of a training on transformed prompts they are those that act before the transform, Aᵀ W_QK A "
        "and Aᵀ W_OV, which are scaled identities where the layer undoes A.",
        source="in-context-denoising, Figures 3 (b) and 8.",
    ),
    call=lambda chosen: make("aotlens.denoise.run_matrices", chosen.record, chosen.run),
    caption=_of_matrices,
    file=lambda chosen: f"{chosen.training}-matrices",
)
SCALES = View(
    name="scales",
    title="Loss over α and β",
    about=About(
        text="The loss of scaled identities on 200 prompts of the task, on a grid of 50 × 50, the deeper the colour "
        "the lower; the best α of each β as a dotted line, and what the runs found (the chosen one, and their mean). "
        "Signs that flip together are undone, since that is the same layer where attention is linear, and nearly so "
        "on tokens that are symmetric around 0; stuck runs are left out. Linear attention depends on the product αβ "
        "only, so that its valley is a hyperbola.",
        source="in-context-denoising, Figure 6.",
    ),
    call=lambda chosen: make(
        "aotlens.denoise.found_scales", chosen.record, call("aotlens.denoise.landscape_around", chosen.record)
    ),
    caption=_of_found,
    file=lambda chosen: f"{chosen.training}-scales",
    drawn=lambda chosen: {"run": chosen.run},
)
RUNS = View(
    name="runs",
    title="All runs",
    about=About(
        text="Mean diagonals and the share off the diagonal, ‖W − diag W‖ ÷ ‖diag W‖; losses a prompt after the last "
        "epoch, in training and on the test prompts."
    ),
    call=lambda chosen: chosen.record,
    caption=lambda chosen, record: of_scales(record),
    file=lambda chosen: f"{chosen.training}-runs",
)


def best_scales(chosen: InPlane) -> Mapping[str, float | int]:
    """Return the α and β that lose least on a task: for softmax by a scan of β, for linear attention the product."""
    import torch

    from aotlens.denoise import landscape, optimal_linear_scale

    if chosen.energy == "hopfield":
        scale = optimal_linear_scale(chosen.drawn_from.run(), chosen.tokens)
    else:
        betas = torch.logspace(-1, 1.6, 60, dtype=torch.float64)
        scale = landscape(chosen.many.run(), torch.ones(1, dtype=torch.float64), betas).minimum
    scales_found = {"alpha": scale.alpha, "beta": scale.beta}
    return {name: PARAMETERS[name].within(round(value, 3)) for name, value in scales_found.items()}
