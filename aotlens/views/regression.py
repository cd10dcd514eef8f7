"""In-context regression as views: errors of models and baselines, and what one model's layers and heads do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.conventions import head_name, minus
from aotlens.statistics import interval_text
from aotlens.views.calls import Call, Load, call, make
from aotlens.views.family import Family
from aotlens.views.head_maps import maps_sentence
from aotlens.views.regression_choice import (
    N_HEADS,
    N_PROMPTS,
    N_READ,
    N_SHOWN,
    N_SUPPORT,
    STAND_INS,
    RegressionParameters,
    regresses,
    width,
)
from aotlens.views.view import About, View

if TYPE_CHECKING:
    from aotlens.denoise.regression import LayerReadings, PromptMaps, RegressionComparison, SupportScores
    from aotlens.heads import EachHead, MotifScores

# ── errors of models ────────────────────────────────────────────────────────────────────────────────────────────


def _errors(chosen: RegressionParameters) -> Call:
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


def make_task(chosen: RegressionParameters) -> Any:
    """Return the task itself."""
    return chosen.task.run()


def _of_errors(chosen: RegressionParameters, result: RegressionComparison) -> str:
    after, told = result.examples, []
    for each in result.errors:
        band = "" if each.name in result.baselines else interval_text(each.bands[after], ".3f", "")
        told.append(f"{each.name} {each.mean[after]:.3f}{band}")
    return (
        f"After {after} examples the squared error ÷ the zero predictor's is: {'; '.join(told)}. Bands are 95% "
        f"intervals of the mean over the same {N_PROMPTS} prompts."
    )


def trained_on(params: RegressionParameters) -> str:
    """Say what the inspected model was trained on; nothing if its checkpoint does not say it."""
    prompts = params.inspected.recipe.get("prompts")
    if not prompts:
        return ""
    weights = f"{prompts['n_nonzero']} weights that count" if prompts.get("n_nonzero") else "all weights counting"
    noise = f"noise {prompts['noise_std']:g}" if prompts.get("noise_std") else "no noise"
    name = params.checkpoint
    return f"{name} was trained on inputs N(0, I) in {prompts['d']} dimensions, {weights}, {noise}."


def of_task(chosen: RegressionParameters) -> str:
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
    drawn=lambda chosen: {"log": chosen.axis == "log"},
)

# ── one model ───────────────────────────────────────────────────────────────────────────────────────────────────


def _of_layers(chosen: RegressionParameters, readings: LayerReadings) -> str:
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
    drawn=lambda chosen: {"log": chosen.axis == "log"},
)


def _without(chosen: RegressionParameters) -> Call:
    prompts = chosen.prompts(N_HEADS)
    return call(
        "aotlens.heads.ablate_each", chosen.model, prompts.part("tokens"), chosen.how,
        targets=prompts.part("targets"), batch_size=64,
    )  # fmt: skip


def _of_without(chosen: RegressionParameters, result: EachHead) -> str:
    worst = np.argsort(-result.changes)[:3]
    heads = ", ".join(f"{result.heads[i][0]}.{result.heads[i][1]} ({minus(result.changes[i], '+.3f')})" for i in worst)
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


def _of_motifs(chosen: RegressionParameters, scores: MotifScores) -> str:
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


def _of_support(chosen: RegressionParameters, scores: SupportScores) -> str:
    z = np.nan_to_num(scores.z)
    layer, head = np.unravel_index(int(np.abs(z).argmax()), z.shape)
    largest = (2 * np.log(max(z.size, 2))) ** 0.5
    beyond = int((np.abs(z) > _THRESHOLD).sum())
    heads = f"{beyond} of {z.size} heads" if beyond else f"None of {z.size} heads"
    verb = "differ" if beyond != 1 else "differs"
    return (
        f"{heads} {verb} by more than {_THRESHOLD:g} standard errors between the {chosen.nonzero} coordinates that "
        f"count and the others; the largest is head {layer}.{head} with {minus(z[layer, head], '+.1f')}. Under the "
        f"null, the largest of {z.size} would be about {largest:.1f}. The unit is the prompt: {scores.n_prompts}."
    )


def _no_support(chosen: RegressionParameters) -> str | None:
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

# ── one prompt ──────────────────────────────────────────────────────────────────────────────────────────────────


def _prompt_maps(params: RegressionParameters) -> Call:
    prompts = params.prompts(N_SHOWN)
    return call("aotlens.denoise.regression.prompt_maps", params.model, prompts, params.prompt).named("maps")


def _says_map(params: RegressionParameters, maps: PromptMaps) -> str:
    query, n_points = params.query, len(maps.labels)
    point = n_points - 1 if query is None else query // 2
    answer = (
        f"Prompt {maps.number}: at x{point + 1}, after {point} examples, the model says "
        f"{minus(float(maps.answers[point]), '+.3f')}, the label is {minus(float(maps.labels[point]), '+.3f')}."
    )
    if query is None:
        return f"{answer} Click an entry of the map, or choose a query, to lock its row."
    if query % 2:
        label = float(maps.labels[point])
        answer = f"Prompt {maps.number}: y{point + 1} is a label, {minus(label, '+.3f')}; nothing is asked there."
    return f"{answer} {maps_sentence(maps.patterns, params.head, query)}"


MAPS = View(
    name="maps",
    title="All heads",
    about=About(
        text="Row = layer, column = head; in each map, queries go down and keys across, in the order x1, y1, x2, y2, … "
        "Each map has its own colour scale, up to its largest value. Click one, or move with the arrow keys.",
    ),
    call=_prompt_maps,
    caption=_says_map,
    file=lambda params: params.file(f"maps-{params.checkpoint}-prompt{params.prompt}"),
    drawn=lambda params: {"all_heads": True, "quantity": params.quantity},
)
MAP = View(
    name="map",
    title="One head",
    about=About(
        text="One head on one of the prompts that errors are measured on. Click an entry to lock it and its query's "
        "row, again or Escape to let it go; point at an entry for its exact value.",
        formula="A(i, j) = φ(score(i, j)); attention · ‖v‖ weighs it by the length of the key's value vector",
        source="A Mathematical Framework for Transformer Circuits (2021); MSSA: Attention-Only Transformers, Eq. 4",
    ),
    call=lambda params: _prompt_maps(params).method("at", head_name(params.head)),
    caption=_says_map,
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
