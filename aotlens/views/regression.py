"""In-context regression as views: errors of models and baselines, and what one model's layers and heads do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from aotlens.conventions import ABLATIONS, Head, head_name, minus
from aotlens.plots.attention import QUANTITIES
from aotlens.views import parameters as declare
from aotlens.views.calls import Call, Load, call, make
from aotlens.views.family import Family
from aotlens.views.parameters import Limit, OfCheckpoints, declared
from aotlens.views.view import View

if TYPE_CHECKING:
    from aotlens.checkpoints import CheckpointInfo
    from aotlens.denoise.regression import LayerReadings, PromptMaps, SupportScores
    from aotlens.heads import EachHead, MotifScores

#: Prompts over which errors are averaged; on which layers are read off, and as many others that the probes are fitted
#: on; on which heads are left out and motifs are measured; of the support's scores; and of which maps are shown.
N_PROMPTS, N_READ, N_HEADS, N_SUPPORT, N_SHOWN = 320, 200, 128, 256, 32

#: The largest dimension of inputs that a control offers.
MOST_D = 64

#: The replacements of a head's output: those that need no other prompts than the ones that are measured.
STAND_INS = {how: ABLATIONS[how] for how in ("mean", "zero", "uniform", "position_mean")}


AXES = {"linear": "linear", "log": "logarithmic"}


@dataclass(frozen=True, kw_only=True)
class RegressionParameters(OfCheckpoints):
    """Models that read equally many numbers, the inspected one, and the task."""

    dims: int | None = declare.whole(None, least=1, most=MOST_D, label="Dimension of inputs")
    nonzero: int | None = declare.whole(None, least=1, most=MOST_D, label="Nonzero weights")
    noise: float = declare.real(0.0, 0.0, 2.0, step=0.05, label="Noise of labels (std)")
    scale: float = declare.real(1.0, 0.2, 3.0, step=0.05, label="Scale of inputs (std)")
    mean: float = declare.real(0.0, -2.0, 2.0, step=0.1, label="Mean of inputs")
    skew: float = declare.real(0.0, 0.0, 4.0, step=0.1, label="Skew of their covariance")
    seed: int = declare.whole(0, most=99, label="Prompts (seed)")
    axis: str = declare.choice(AXES, label="Axis of errors", page_only=True)
    how: str = declare.choice(STAND_INS, label="Replace head output with")
    head: Head = declare.head("Head", page_only=True)
    prompt: int = declare.whole(0, most=N_SHOWN - 1, label="Prompt", page_only=True)
    query: int | None = declare.row("Locked query", blank="no row locked", page_only=True)
    quantity: str = declare.choice(QUANTITIES, label="Quantity shown in the maps", key="view", page_only=True)

    @classmethod
    def of_infos(cls, *infos: CheckpointInfo, **values: Any) -> Self:
        widths = {info.name: width(info) for info in infos}
        if len(set(widths.values())) > 1:
            raise ValueError(f"expected checkpoints of regression that read equally many numbers, got {widths}.")
        return super().of_infos(*infos, **values)

    def limits(self) -> Mapping[str, Limit]:
        from aotlens.denoise.regression import prompt_positions

        return {
            "dims": Limit(most=self.d, off=self.d < 2),
            "nonzero": Limit(most=self.dims or self.d, off=self.d < 2),
            "query": Limit(options=dict(enumerate(prompt_positions(2 * self.points[self.checkpoint] - 1)))),
        }

    @property
    def d(self) -> int:
        """The number of coordinates of an input."""
        return width(self.inspected)

    @property
    def points(self) -> dict[str, int]:
        """The number of points of the longest prompt that each model reads."""
        return {info.name: (int(info.model["n_ctx"]) + 1) // 2 for info in (*self.infos, self.inspected)}

    @property
    def n_heads(self) -> int:
        """The number of heads of the inspected model, in all layers."""
        return int(self.inspected.model["n_layers"]) * int(self.inspected.model["n_heads"])

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
        weights = {info.name: info.n_weights or 0 for info in (*self.infos, self.inspected)}
        return 2.0 * weights[model] * 2 * self.points[model] * n_prompts * n_passes

    def file(self, what: str) -> str:
        """Name a file of `what`."""
        parts = [f"d{self.dims or self.d}"]
        parts += [] if self.nonzero is None else [f"nonzero{self.nonzero}"]
        usual = {name: declared(RegressionParameters)[name].first for name in ("noise", "scale", "mean", "skew")}
        parts += [f"{key}{getattr(self, key):g}" for key, first in usual.items() if getattr(self, key) != first]
        return f"regression-{what}-{'-'.join(parts)}-seed{self.seed}"


def width(info: CheckpointInfo) -> int:
    """Return how many numbers a model reads."""
    return int(info.model.get("d_in") or info.model["d_model"])


def regresses(info: CheckpointInfo) -> bool:
    """Return whether a checkpoint is of in-context regression: vectors in, one number out, later tokens unseen."""
    model = info.model
    ends = model.get("read_in"), model.get("read_out"), model.get("d_out")
    return ends == ("vectors", "vectors", 1) and bool(model.get("causal", True))


# ── errors of models ────────────────────────────────────────────────────────────────────────────────────────────


def _errors(params: RegressionParameters) -> Call:
    from aotlens.denoise.regression import shown_baselines

    drawn = {"n_prompts": N_PROMPTS, "seed": params.seed}
    models = [
        call("aotlens.evaluate.regression_errors", Load(name), params.task, **drawn, name=name)
        for name in params.models
    ]  # fmt: skip
    longest = max(params.points[name] for name in params.models)
    baselines = [
        call("aotlens.denoise.regression.baseline_errors", name, params.task, **drawn, n_points=longest)
        for name in shown_baselines(params.task.run())
    ]
    return make("aotlens.denoise.regression.RegressionComparison", [*models, *baselines])


def trained_on(params: RegressionParameters) -> str:
    """Say what the inspected model was trained on; nothing if its checkpoint does not say it."""
    prompts = params.inspected.recipe.get("prompts")
    if not prompts:
        return ""
    weights = f"{prompts['n_nonzero']} weights that count" if prompts.get("n_nonzero") else "all weights counting"
    noise = f"noise {prompts['noise_std']:g}" if prompts.get("noise_std") else "no noise"
    name = params.checkpoint
    return f"{name} was trained on inputs N(0, I) in {prompts['d']} dimensions, {weights}, {noise}."


def of_task(params: RegressionParameters) -> str:
    """Say what prompts are drawn from, in a sentence."""
    dims = params.dims or params.d
    of_width = "" if params.dims is None else f" of the {params.d} that the models read"
    weights = "all weights count" if params.nonzero is None else f"{params.nonzero} of the weights count"
    noise = "no noise" if not params.noise else f"noise of standard deviation {params.noise:g}"
    inputs = f"inputs of mean {params.mean:g} and standard deviation {params.scale:g}"
    skew = f", covariance eigenvalues falling as i^−{params.skew:g}" if params.skew else ""
    return f"Prompts: {dims} coordinates{of_width}, {weights}, {inputs}{skew}, {noise}."


ERRORS = View(
    name="errors",
    title="Error by the number of examples",
    about="A prompt x1, y1, x2, y2, … labels random inputs by one random linear function; at every x the model says "
    f"what its label is. A line is the mean squared error over {N_PROMPTS} prompts by the number of labelled "
    "examples before the query, divided by what saying 0 gets; its band is a 95% interval over prompts, and says "
    "nothing of other trainings. Dashed: least squares, averaging (the mean of y·x as weights) and the mean label "
    "of the 3 nearest inputs, on the same prompts; a linear axis cuts them off where they rise above all models. "
    "Sliders move prompts away from those that the models were trained on. A skew s makes the i-th eigenvalue of "
    "the inputs' covariance go as i to the −s, in a basis that each prompt draws for itself; inputs stay as long "
    "on average.",
    formula="error(i) = E (ŷ − y)² ÷ E y² after i examples; without noise and with inputs N(0, I) least squares has "
    "max(0, 1 − i/d), averaging (d + 1)/i",
    source="Attention-Only Transformers, §4.2.2 and Figure 6; What Can Transformers Learn In-Context? (Garg et al. "
    "2022), §4 for shifted prompts",
    call=_errors,
    cost=lambda params: sum(params.operations(name, N_PROMPTS) for name in params.models),
    file=lambda params: params.file("errors"),
    drawn=lambda params: {"log": params.axis == "log"},
)

# ── one model ───────────────────────────────────────────────────────────────────────────────────────────────────


def _of_layers(params: RegressionParameters, readings: LayerReadings) -> str:
    from aotlens.denoise.regression import counted_steps

    parts = []
    for layer, (name, steps) in enumerate(readings.nearest[1:]):
        algorithm = name if name == "least squares" else f"{counted_steps(steps)} of {name} descent"
        parts.append(f"layer {layer}: {algorithm} (distance {readings.distance[layer + 1].min():.3f})")
    return (
        f"{params.checkpoint}, nearest to the answer after each layer, on {readings.n_prompts} prompts: "
        f"{'; '.join(parts)}. A distance compares answers and says nothing of how a layer gets there."
    )


LAYERS = View(
    name="layers",
    title="The answer after each layer",
    about="After each layer the answer is read off the stream at every x by one linear map, fitted by least squares "
    f"on {N_READ} other prompts, and measured on {N_READ}. Dashed: for each layer the algorithm whose answers are "
    "nearest to it, of 1 to 6 steps of gradient descent from 0, of descent preconditioned by I − γH, and least "
    "squares; step sizes are the best for every number of examples. That two agree does not say that the layer "
    "computes it that way.",
    formula="distance = mean (probe's answer − algorithm's answer)² ÷ E y²",
    source="Transformers Learn In-Context by Gradient Descent (von Oswald et al. 2023)",
    call=lambda params: call(
        "aotlens.denoise.regression.read_layers", params.model, params.task, n_prompts=N_READ, seed=params.seed
    ),
    caption=_of_layers,
    cost=lambda params: params.operations(params.checkpoint, 2 * N_READ),
    file=lambda params: params.file(f"layers-{params.checkpoint}"),
    drawn=lambda params: {"log": params.axis == "log"},
)


def _without(params: RegressionParameters) -> Call:
    prompts = params.prompts(N_HEADS)
    return call(
        "aotlens.heads.ablate_each", params.model, prompts.part("tokens"), params.how,
        targets=prompts.part("targets"), batch_size=64,
    )  # fmt: skip


def _of_without(params: RegressionParameters, result: EachHead) -> str:
    worst = np.argsort(-result.changes)[:3]
    heads = ", ".join(f"{result.heads[i][0]}.{result.heads[i][1]} ({minus(result.changes[i], '+.3f')})" for i in worst)
    return (
        f"Mean squared error of {params.checkpoint} over all queries: {float(result.clean.mean()):.3f} (the zero "
        f"predictor's is {params.task.run().zero_error:.3g}). Missed most where a head is ablated by "
        f"{STAND_INS[params.how]}: {heads}. Intervals are 95% over {len(result.clean)} prompts."
    )


WITHOUT = View(
    name="without",
    title="Without each head",
    about="The rise of the mean squared error over all queries of a prompt when one head is ablated, on "
    f"{N_HEADS} prompts; the positions of labels do not count. Means are those of the head over the same "
    "prompts. Intervals are Student's t of the paired differences, the prompt being the unit.",
    formula="change = mean over prompts of (error without the head − error)",
    call=_without,
    caption=_of_without,
    cost=lambda params: params.operations(params.checkpoint, N_HEADS, params.n_heads + 2),
    file=lambda params: params.file(f"without-heads-{params.how}-{params.checkpoint}"),
)


def _of_motifs(params: RegressionParameters, scores: MotifScores) -> str:
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
    about="Mean attention beyond uniform attention: own input: from a label to its x; all labels, all inputs: from "
    "an x to the labels, or inputs, before it; last label: from an x to the label before it; current token: to "
    f"itself. On {N_HEADS} prompts; the file has each score, uniform attention's, and 95% intervals over prompts.",
    formula="excess = mean over queries of Σ A(query, keys of the motif) − the same of uniform attention",
    call=lambda params: call(
        "aotlens.heads.attention_in_prompts", params.model, params.prompts(N_HEADS).part("tokens")
    ),
    caption=_of_motifs,
    cost=lambda params: params.operations(params.checkpoint, N_HEADS),
    file=lambda params: params.file(f"motifs-{params.checkpoint}"),
    drawn=lambda params: {"excess": True},
    table="chance_frame",
)

#: Standard errors from which a head counts: beyond what the largest of some hundred heads would be by chance.
_THRESHOLD = 4.0


def _of_support(params: RegressionParameters, scores: SupportScores) -> str:
    z = np.nan_to_num(scores.z)
    layer, head = np.unravel_index(int(np.abs(z).argmax()), z.shape)
    largest = (2 * np.log(max(z.size, 2))) ** 0.5
    beyond = int((np.abs(z) > _THRESHOLD).sum())
    heads = f"{beyond} of {z.size} heads" if beyond else f"None of {z.size} heads"
    verb = "differ" if beyond != 1 else "differs"
    return (
        f"{heads} {verb} by more than {_THRESHOLD:g} standard errors between the {params.nonzero} coordinates that "
        f"count and the others; the largest is head {layer}.{head} with {minus(z[layer, head], '+.1f')}. Under the "
        f"null, the largest of {z.size} would be about {largest:.1f}. The unit is the prompt: {scores.n_prompts}."
    )


def _no_support(params: RegressionParameters) -> str | None:
    if params.nonzero is not None:
        return None
    return (
        "Labels depend on every coordinate here. Set Nonzero weights below the dimension to see whether a head's "
        "scores single out those that count."
    )


SUPPORT = View(
    name="support",
    title="Coordinates that count",
    about="On a sparse task only some coordinates count, others in each prompt, which no weight of the model can "
    "know. For queries x and the labels before them, a head's scores are regressed on the products of coordinates "
    "that count and of those that do not. A head that compares inputs whatever the prompt has the same slope for "
    "both; one that has found the support has a larger one for those that count. Labels are sums over the support: "
    "a third term takes off what a head's scores owe to comparing the answer with them. On "
    f"{N_SUPPORT} prompts, with 95% intervals.",
    formula="score(xᵢ, yⱼ) = aᵢ + β_on Σ over the support xᵢₖxⱼₖ + β_off Σ over the others xᵢₖxⱼₖ + β_labels (w·xᵢ) yⱼ",
    call=lambda params: call(
        "aotlens.denoise.regression.support_scores", params.model, params.task, n_prompts=N_SUPPORT, seed=params.seed
    ),
    caption=_of_support,
    cost=lambda params: params.operations(params.checkpoint, N_SUPPORT),
    file=lambda params: params.file(f"support-{params.checkpoint}"),
    missing=_no_support,
)

# ── one prompt ──────────────────────────────────────────────────────────────────────────────────────────────────


def _prompt_maps(params: RegressionParameters) -> Call:
    prompts = params.prompts(N_SHOWN)
    return call("aotlens.denoise.regression.prompt_maps", params.model, prompts, params.prompt).named("maps")


def _of_map(params: RegressionParameters, maps: PromptMaps) -> str:
    return maps.at(params.head).sentences(params.query)


MAPS = View(
    name="maps",
    title="All heads",
    about="Row = layer, column = head; in each map, queries go down and keys across, in the order x1, y1, x2, y2, … "
    "Each map has its own colour scale, up to its largest value. Click one, or move with the arrow keys.",
    call=_prompt_maps,
    caption=_of_map,
    file=lambda params: params.file(f"maps-{params.checkpoint}-prompt{params.prompt}"),
    drawn=lambda params: {"all_heads": True, "quantity": params.quantity},
)
MAP = View(
    name="map",
    title="One head",
    about="One head on one of the prompts that errors are measured on. Click an entry to lock it and its query's row, "
    "again or Escape to let it go; point at an entry for its exact value.",
    formula="A(i, j) = φ(score(i, j)); attention · ‖v‖ weighs it by the length of the key's value vector",
    source="A Mathematical Framework for Transformer Circuits (2021); MSSA: Attention-Only Transformers, Eq. 4",
    call=lambda params: _prompt_maps(params).method("at", head_name(params.head)),
    caption=_of_map,
    file=lambda params: params.file(f"map-{params.checkpoint}-prompt{params.prompt}-head{head_name(params.head)}"),
    drawn=lambda params: {"quantity": params.quantity},
)

FAMILY = Family(
    "regression",
    "How well do models regress in context, and which layers and heads do it?",
    (ERRORS, LAYERS, WITHOUT, MOTIFS, SUPPORT, MAPS, MAP),
    RegressionParameters,
    reads=regresses,
    none="No checkpoint here regresses in context. Train one (aotlens train regression-5d-mhsa), or start the app with "
    "--checkpoints DIR, a folder that has one.",
    alike=width,
    alike_words=("Models that read", "{} numbers"),
)
