"""In-context regression as views: errors of models and baselines, and what one model's layers and heads do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.conventions import ABLATIONS
from aotlens.views.calls import Call, Load, call, make
from aotlens.views.family import Choice, Family
from aotlens.views.view import About, Parameter, View

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo
    from aotlens.denoise.regression import LayerReadings, RegressionComparison, SupportScores
    from aotlens.heads import EachHead, MotifScores

#: Prompts over which errors are averaged; on which layers are read off, and as many others that the probes are fitted
#: on; on which heads are left out and motifs are measured; of the support's scores; and of which maps are shown.
N_PROMPTS, N_READ, N_HEADS, N_SUPPORT, N_SHOWN = 320, 200, 128, 256, 32

#: The most numbers that an input may have where they are chosen.
MOST_D = 64

#: The parameters that the prompts are drawn from, beside the number of coordinates and of weights that count.
PARAMETERS = {
    "noise": Parameter(label="Noise of labels (std)", first=0.0, least=0.0, most=2.0, step=0.05),
    "scale": Parameter(label="Scale of inputs (std)", first=1.0, least=0.2, most=3.0, step=0.05),
    "mean": Parameter(label="Mean of inputs", first=0.0, least=-2.0, most=2.0, step=0.1),
    "skew": Parameter(label="Skew of their covariance", first=0.0, least=0.0, most=4.0, step=0.1),
    "seed": Parameter(label="Prompts (seed)", first=0, least=0, most=99),
}

#: The replacements of a head's output: those that need no other prompts than the ones that are measured.
STAND_INS = {how: ABLATIONS[how] for how in ("mean", "zero", "uniform", "position_mean")}


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Models that read equally many numbers, the inspected one, and the task."""

    models: tuple[str, ...]
    checkpoint: str
    d: int
    points: Mapping[str, int] = field(default_factory=dict)
    """Points of the longest prompt that each of the models reads."""
    weights: Mapping[str, int] = field(default_factory=dict)
    """The number of weights of each of them."""
    n_heads: int = 0
    """The number of heads of the inspected one, in all layers."""
    dims: int | None = None
    nonzero: int | None = None
    noise: float | int = 0.0
    scale: float | int = 1.0
    mean: float | int = 0.0
    skew: float | int = 0.0
    seed: int = 0
    how: str = "mean"
    log: bool = False

    @property
    def task(self) -> Call:
        """The task that the prompts are drawn from."""
        settings = {
            "n_nonzero": self.nonzero, "n_dims": self.dims, "noise_std": self.noise, "input_scale": self.scale,
            "input_mean": self.mean, "input_skew": self.skew,
        }  # fmt: skip
        usual = {"n_nonzero": None, "n_dims": None, "noise_std": 0.0, "input_scale": 1.0}
        settings = {name: value for name, value in settings.items() if value != usual.get(name, 0.0)}
        return make("aotlens.data.RegressionTask", d=self.d, **settings).named("task")

    @property
    def model(self) -> Load:
        """The one that is looked into."""
        return Load(self.checkpoint)

    def prompts(self, n_prompts: int) -> Call:
        """Return the first prompts of the task, as long as the checkpoint reads them."""
        return self.task.method("sample", n_prompts, self.points[self.checkpoint], self.seed).named("prompts")

    def operations(self, model: str, n_prompts: int, n_passes: int = 1) -> float:
        """Count two operations for each weight, position and pass over so many prompts."""
        return 2.0 * self.weights.get(model, 0) * 2 * self.points[model] * n_prompts * n_passes

    def file(self, what: str) -> str:
        """Name a file of `what`."""
        parts = [f"d{self.dims or self.d}"]
        parts += [] if self.nonzero is None else [f"nonzero{self.nonzero}"]
        usual = {name: parameter.first for name, parameter in PARAMETERS.items() if name != "seed"}
        parts += [f"{key}{getattr(self, key):g}" for key, first in usual.items() if getattr(self, key) != first]
        return f"regression-{what}-{'-'.join(parts)}-seed{self.seed}"


def _values(*infos: CheckpointInfo, **chosen: Any) -> Chosen:
    widths = {info.name: int(info.model.get("d_in") or info.model["d_model"]) for info in infos}
    if len(set(widths.values())) > 1:
        raise ValueError(f"expected checkpoints of regression that read equally many numbers, got {widths}.")
    points = {info.name: (int(info.model["n_ctx"]) + 1) // 2 for info in infos}
    models = tuple(widths)
    return Chosen(
        models=models, checkpoint=models[0], d=widths[models[0]], points=points, **sizes(*infos), **chosen
    )  # fmt: skip


def sizes(*infos: CheckpointInfo) -> dict[str, Any]:
    """Return `Chosen`'s fields about how large models are, the first of which is inspected."""
    model = infos[0].model
    return {
        "weights": {info.name: info.n_weights or 0 for info in infos},
        "n_heads": int(model["n_layers"]) * int(model["n_heads"]),
    }


def regresses(info: CheckpointInfo) -> bool:
    """Return whether a checkpoint is of in-context regression: vectors in, one number out, later tokens unseen."""
    model = info.model
    ends = model.get("read_in"), model.get("read_out"), model.get("d_out")
    return ends == ("vectors", "vectors", 1) and bool(model.get("causal", True))


# ── errors of models ────────────────────────────────────────────────────────────────────────────────────────────


def _errors(chosen: Chosen) -> Call:
    from aotlens.denoise.regression import shown_baselines

    drawn = {"n_prompts": N_PROMPTS, "seed": chosen.seed}
    models = [
        call("aotlens.evaluate.regression_errors", Load(name), chosen.task, **drawn, name=name)
        for name in chosen.models
    ]  # fmt: skip
    longest = max(chosen.points[name] for name in chosen.models)
    baselines = [
        call("aotlens.denoise.regression.baseline_errors", name, chosen.task, **drawn, n_points=longest)
        for name in shown_baselines(make_task(chosen))
    ]
    return make("aotlens.denoise.regression.RegressionComparison", [*models, *baselines])


def make_task(chosen: Chosen) -> Any:
    """Return the task itself."""
    return chosen.task.run()


def _of_errors(chosen: Chosen, result: RegressionComparison) -> str:
    after, told = result.examples, []
    for each in result.errors:
        low, high = each.bands[after]
        band = "" if each.name in result.baselines else f" ({low:.3f} to {high:.3f})"
        told.append(f"{each.name} {each.mean[after]:.3f}{band}")
    return (
        f"After {after} examples the squared error ÷ the zero predictor's is: {'; '.join(told)}. Bands are 95% "
        f"intervals of the mean over the same {N_PROMPTS} prompts."
    )


def of_task(chosen: Chosen) -> str:
    """Say what prompts are drawn from, in a sentence."""
    dims = chosen.dims or chosen.d
    of_width = "" if chosen.dims is None else f" of the {chosen.d} that the models read"
    weights = "all weights count" if chosen.nonzero is None else f"{chosen.nonzero} of the weights count"
    noise = "no noise" if not chosen.noise else f"noise of standard deviation {chosen.noise:g}"
    inputs = f"inputs of mean {chosen.mean:g} and standard deviation {chosen.scale:g}"
    skew = f", covariance eigenvalues falling as i^−{chosen.skew:g}" if chosen.skew else ""
    return f"Prompts: {dims} coordinates{of_width}, {weights}, {inputs}{skew}, {noise}."


ERRORS = View(
    name="errors",
    title="Error by the number of examples",
    about=About(
        text="A prompt x1, y1, x2, y2, … labels random inputs by one random linear function; at every x the model says "
        f"what its label is. A line is the mean squared error over {N_PROMPTS} prompts by the number of labelled "
        "examples before the query, divided by what saying 0 gets; its band is a 95% interval over prompts, and says "
        "nothing of other trainings. Dashed: least squares, averaging (the mean of y·x as weights) and the mean label "
        "of the 3 nearest inputs, on the same prompts; a linear axis cuts them off where they rise above all models. "
        "Sliders move prompts away from those that the models were trained on. A skew s makes the i-th eigenvalue of "
        "the inputs' covariance go as i to the −s, in a basis that each prompt draws for itself; inputs stay as long "
        "on average.",
        formula="error(i) = E (ŷ − y)² ÷ E y² after i examples; without noise and with inputs N(0, I) least squares "
        "has max(0, 1 − i/d), averaging (d + 1)/i",
        source="Attention-Only Transformers, §4.2.2 and Figure 6; What Can Transformers Learn In-Context? (Garg et al. "
        "2022), §4 for shifted prompts",
    ),
    call=_errors,
    caption=_of_errors,
    cost=lambda chosen: sum(chosen.operations(name, N_PROMPTS) for name in chosen.models),
    file=lambda chosen: chosen.file("errors"),
    drawn=lambda chosen: {"log": chosen.log},
)

# ── one model ───────────────────────────────────────────────────────────────────────────────────────────────────


def _of_layers(chosen: Chosen, readings: LayerReadings) -> str:
    from aotlens.denoise.regression import counted_steps

    parts = []
    for layer, (name, steps) in enumerate(readings.nearest[1:]):
        algorithm = name if name == "least squares" else f"{counted_steps(steps)} of {name} descent"
        parts.append(f"layer {layer}: {algorithm} (distance {readings.distance[layer + 1].min():.3f})")
    return (
        f"{chosen.checkpoint}, nearest to the answer after each layer, on {readings.n_prompts} prompts: "
        f"{'; '.join(parts)}. A distance compares answers and says nothing of how a layer gets there."
    )


LAYERS = View(
    name="layers",
    title="The answer after each layer",
    about=About(
        text="After each layer the answer is read off the stream at every x by one linear map, fitted by least squares "
        f"on {N_READ} other prompts, and measured on {N_READ}. Dashed: for each layer the algorithm whose answers are "
        "nearest to it, of 1 to 6 steps of gradient descent from 0, of descent preconditioned by I − γH, and least "
        "squares; step sizes are the best for every number of examples. That two agree does not say that the layer "
        "computes it that way.",
        formula="distance = mean (probe's answer − algorithm's answer)² ÷ E y²",
        source="Transformers Learn In-Context by Gradient Descent (von Oswald et al. 2023)",
    ),
    call=lambda chosen: call(
        "aotlens.denoise.regression.read_layers", chosen.model, chosen.task, n_prompts=N_READ, seed=chosen.seed
    ),
    caption=_of_layers,
    cost=lambda chosen: chosen.operations(chosen.checkpoint, 2 * N_READ),
    file=lambda chosen: chosen.file(f"layers-{chosen.checkpoint}"),
    drawn=lambda chosen: {"log": chosen.log},
)


def _without(chosen: Chosen) -> Call:
    prompts = chosen.prompts(N_HEADS)
    return call(
        "aotlens.heads.ablate_each", chosen.model, prompts.part("tokens"), chosen.how,
        targets=prompts.part("targets"), batch_size=64,
    )  # fmt: skip


def _of_without(chosen: Chosen, result: EachHead) -> str:
    worst = np.argsort(-result.changes)[:3]
    heads = ", ".join(f"{result.heads[i][0]}.{result.heads[i][1]} ({result.changes[i]:+.3f})" for i in worst)
    return (
        f"Mean squared error of {chosen.checkpoint} over all queries: {float(result.clean.mean()):.3f} (the zero "
        f"predictor's is {make_task(chosen).zero_error:.3g}). Missed most where a head is ablated by "
        f"{STAND_INS[chosen.how]}: {heads}. Intervals are 95% over {len(result.clean)} prompts."
    )


WITHOUT = View(
    name="without",
    title="Without each head",
    about=About(
        text="The rise of the mean squared error over all queries of a prompt when one head is ablated, on "
        f"{N_HEADS} prompts; the positions of labels do not count. Means are those of the head over the same "
        "prompts. Intervals are Student's t of the paired differences, the prompt being the unit.",
        formula="change = mean over prompts of (error without the head − error)",
    ),
    call=_without,
    caption=_of_without,
    cost=lambda chosen: chosen.operations(chosen.checkpoint, N_HEADS, chosen.n_heads + 2),
    file=lambda chosen: chosen.file(f"without-heads-{chosen.how}-{chosen.checkpoint}"),
)


def _of_motifs(chosen: Chosen, scores: MotifScores) -> str:
    assert scores.uniform is not None
    parts = []
    for index, name in enumerate(scores.motifs):
        best = scores.best(name)
        if best is not None:
            (layer, head), score = best
            even = scores.uniform[index, layer, head]
            parts.append(f"{name.replace('_', ' ')} {layer}.{head} {score:.2f} ({even:.2f})")
    return f"Most attention to each motif, uniform attention's in brackets, on {scores.about}: {', '.join(parts)}."


MOTIFS = View(
    name="motifs",
    title="Where heads look in prompts",
    about=About(
        text="Mean attention beyond uniform attention: own input: from a label to its x; all labels, all inputs: from "
        "an x to the labels, or inputs, before it; last label: from an x to the label before it; current token: to "
        f"itself. On {N_HEADS} prompts; the file has each score, uniform attention's, and 95% intervals over prompts.",
        formula="excess = mean over queries of Σ A(query, keys of the motif) − the same of uniform attention",
    ),
    call=lambda chosen: call(
        "aotlens.heads.attention_in_prompts", chosen.model, chosen.prompts(N_HEADS).part("tokens")
    ),
    caption=_of_motifs,
    cost=lambda chosen: chosen.operations(chosen.checkpoint, N_HEADS),
    file=lambda chosen: chosen.file(f"motifs-{chosen.checkpoint}"),
    drawn=lambda chosen: {"excess": True},
    table="chance_frame",
)

#: Standard errors from which a head counts: beyond what the largest of some hundred heads would be by chance.
_THRESHOLD = 4.0


def _of_support(chosen: Chosen, scores: SupportScores) -> str:
    z = np.nan_to_num(scores.z)
    layer, head = np.unravel_index(int(np.abs(z).argmax()), z.shape)
    largest = (2 * np.log(max(z.size, 2))) ** 0.5
    beyond = int((np.abs(z) > _THRESHOLD).sum())
    heads = f"{beyond} of {z.size} heads" if beyond else f"None of {z.size} heads"
    verb = "differ" if beyond != 1 else "differs"
    return (
        f"{heads} {verb} by more than {_THRESHOLD:g} standard errors between the {chosen.nonzero} coordinates that "
        f"count and the others; the largest is head {layer}.{head} with {z[layer, head]:+.1f}. Under the "
        f"null, the largest of {z.size} would be about {largest:.1f}. The unit is the prompt: {scores.n_prompts}."
    )


def _no_support(chosen: Chosen) -> str | None:
    if chosen.nonzero is not None:
        return None
    return (
        "Labels depend on every coordinate here. Set Nonzero weights below the dimension to see whether a head's "
        "scores single out those that count."
    )


SUPPORT = View(
    name="support",
    title="Coordinates that count",
    about=About(
        text="On a sparse task only some coordinates count, others in each prompt, which no weight of the model can "
        "know. For queries x and the labels before them, a head's scores are regressed on the products of coordinates "
        "that count and of those that do not. A head that compares inputs whatever the prompt has the same slope for "
        "both; one that has found the support has a larger one for those that count. Labels are sums over the support: "
        "a third term takes off what a head's scores owe to comparing the answer with them. On "
        f"{N_SUPPORT} prompts, with 95% intervals.",
        formula="score(xᵢ, yⱼ) = aᵢ + β_on Σ over the support xᵢₖxⱼₖ + β_off Σ over the others xᵢₖxⱼₖ + β_labels "
        "(w·xᵢ) yⱼ",
    ),
    call=lambda chosen: call(
        "aotlens.denoise.regression.support_scores", chosen.model, chosen.task, n_prompts=N_SUPPORT, seed=chosen.seed
    ),
    caption=_of_support,
    cost=lambda chosen: chosen.operations(chosen.checkpoint, N_SUPPORT),
    file=lambda chosen: chosen.file(f"support-{chosen.checkpoint}"),
    missing=_no_support,
)

#: The views of several models, and of the inspected one.
VIEWS: Sequence[View] = (ERRORS, LAYERS, WITHOUT, MOTIFS, SUPPORT)

FAMILY = Family(
    name="regression",
    about="How well do models regress in context, and which layers and heads do it?",
    views=VIEWS,
    values=_values,
    parameters={
        "dims": Parameter("Dimension of inputs", None, least=1, most=MOST_D),
        "nonzero": Parameter("Nonzero weights", None, least=1, most=MOST_D),
        **PARAMETERS,
        "how": Choice("Replace head output with", STAND_INS),
    },
    reads=regresses,
    several=True,
)
