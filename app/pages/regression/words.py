"""What the In-context regression page says of its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.denoise.regression import ESTIMATORS, counted_steps
from app.core.inference import PromptResult
from app.core.switches import HOWS, How
from app.pages.regression.service import N_PROMPTS, Asked

if TYPE_CHECKING:
    from aotlens.data import RegressionPrompts
    from aotlens.denoise.regression import LayerReadings, SupportScores
    from aotlens.evaluate import RegressionErrors
    from aotlens.heads import EachHead, MotifScores

#: Keys that a locked query's sentence names.
_N_KEYS = 3


def of_errors(asked: Asked, results: Sequence[RegressionErrors]) -> list[str]:
    """The answer in sentences: errors after 2d examples, and what the task is."""
    after = min(2 * asked.d, *(len(result.mean) - 1 for result in results))
    told = []
    for result in results:
        low, high = result.bands[after]
        band = "" if result.name in ESTIMATORS else f" ({low:.3f} to {high:.3f})"
        told.append(f"{result.name} {result.mean[after]:.3f}{band}")
    said = (
        f"After {after} examples the squared error ÷ the zero predictor's is: {'; '.join(told)}. Bands are 95% "
        f"intervals of the mean over the same {N_PROMPTS} prompts."
    )
    return [said, of_task(asked)]


def of_task(asked: Asked) -> str:
    """What prompts are drawn from."""
    dims = asked.dims or asked.d
    of_width = "" if asked.dims is None else f" of the {asked.d} that the models read"
    weights = "all weights count" if asked.nonzero is None else f"{asked.nonzero} of the weights count"
    noise = "no noise" if not asked.noise else f"noise of standard deviation {asked.noise:g}"
    inputs = f"inputs of mean {asked.mean:g} and standard deviation {asked.scale:g}"
    skew = f", covariance eigenvalues falling as i^−{asked.skew:g}" if asked.skew else ""
    return f"Prompts: {dims} coordinates{of_width}, {weights}, {inputs}{skew}, {noise}."


def of_training(recipe: Mapping[str, Any]) -> str:
    """What a model was trained on, as far as its checkpoint says; nothing where it doesn't."""
    prompts = recipe.get("prompts")
    if not prompts:
        return ""
    weights = f"{prompts['n_nonzero']} weights that count" if prompts.get("n_nonzero") else "all weights counting"
    noise = f"noise {prompts['noise_std']:g}" if prompts.get("noise_std") else "no noise"
    return f"It was trained on inputs N(0, I) in {prompts['d']} dimensions, {weights}, {noise}."


def of_layers(asked: Asked, readings: LayerReadings) -> str:
    """What is nearest to each layer."""
    parts = []
    for layer, (name, steps) in enumerate(readings.nearest[1:]):
        algorithm = name if name == "least squares" else f"{counted_steps(steps)} of {name} descent"
        parts.append(f"layer {layer}: {algorithm} (distance {readings.distance[layer + 1].min():.3f})")
    return (
        f"{asked.checkpoint}, nearest to the answer after each layer, on {readings.n_prompts} prompts: "
        f"{'; '.join(parts)}. A distance compares answers and says nothing of how a layer gets there."
    )


def of_map(result: PromptResult, prompts: RegressionPrompts, number: int, head: Any, query: int | None) -> str:
    """What the model says on the prompt; of a locked query, what it says there and where the head looks."""
    n_points = (result.patterns.n_pos + 1) // 2
    labels, answers = prompts.labels[number], result.logits[::2, 0]
    point = n_points - 1 if query is None else query // 2
    say = (
        f"Prompt {number}: at x{point + 1}, after {point} examples, the model says {float(answers[point]):+.3f}, "
        f"the label is {float(labels[point]):+.3f}."
    )
    if query is None:
        return f"{say} Click an entry of the map, or choose a query, to lock its row."
    if query % 2:
        say = f"Prompt {number}: y{point + 1} is a label, {float(labels[point]):+.3f}; nothing is asked there."
    row = result.patterns.pattern[head[0], head[1], query, : query + 1]
    order = np.argsort(-np.abs(row))[:_N_KEYS]
    strings = result.patterns.str_tokens
    where = ", ".join(f"{strings[key]} {row[key]:.3f}" for key in order)
    return f"{say} From {strings[query]} head {head[0]}.{head[1]} attends to {where}, most first."


def of_without(asked: Asked, result: EachHead) -> str:
    """Which heads are missed most."""
    order, stands = np.argsort(-result.changes)[:3], STAND_INS[_how(result)]
    heads = ", ".join(f"{result.heads[i][0]}.{result.heads[i][1]} ({result.changes[i]:+.3f})" for i in order)
    return (
        f"Mean squared error of {asked.checkpoint} over all queries: {float(result.clean.mean()):.3f} (the zero "
        f"predictor's is {asked.task.zero_error:.3g}). Missed most where a head gives way to {stands}: "
        f"{heads}. Intervals are 95% over {len(result.clean)} prompts."
    )


def of_motifs(scores: MotifScores) -> str:
    """Which head does each motif most."""
    assert scores.uniform is not None
    parts = []
    for index, name in enumerate(scores.motifs):
        best = scores.best(name)
        if best is not None:
            (layer, head), score = best
            even = scores.uniform[index, layer, head]
            parts.append(f"{name.replace('_', ' ')} {layer}.{head} {score:.2f} ({even:.2f})")
    return f"Most attention to each motif, even attention's in brackets, on {scores.about}: {', '.join(parts)}."


def of_support(asked: Asked, scores: SupportScores) -> str:
    """Whether any head's scores go with the support, many heads having been looked at."""
    z = np.nan_to_num(scores.z)
    layer, head = np.unravel_index(int(np.abs(z).argmax()), z.shape)
    largest = (2 * np.log(max(z.size, 2))) ** 0.5
    beyond = int((np.abs(z) > _THRESHOLD).sum())
    found = f"{beyond} of {z.size} heads" if beyond else f"None of {z.size} heads"
    verb = "differ" if beyond != 1 else "differs"
    return (
        f"{found} {verb} by more than {_THRESHOLD:g} standard errors between the {asked.nonzero} coordinates that "
        f"count and the others; the largest is head {layer}.{head} with {z[layer, head]:+.1f}. Of {z.size} heads that "
        f"know nothing, the largest would be about {largest:.1f}. The prompt is the unit: {scores.n_prompts} of them."
    )


#: Standard errors from which a head counts: beyond what the largest of some hundred heads would be by chance.
_THRESHOLD = 4.0
#: What stands in a head's place, of prompts.
STAND_INS: dict[How, str] = {**HOWS, "resample": "its output on another prompt"}


def _how(result: EachHead) -> How:
    return next(how for how in STAND_INS if how == result.how)


def name(asked: Asked, what: str) -> str:
    """What a file is called."""
    parts = [f"d{asked.dims or asked.d}"]
    parts += [] if asked.nonzero is None else [f"nonzero{asked.nonzero}"]
    shifts = {"noise": asked.noise, "scale": asked.scale - 1, "mean": asked.mean, "skew": asked.skew}
    parts += [f"{key}{getattr(asked, key):g}" for key, shift in shifts.items() if shift]
    return f"regression-{what}-{'-'.join(parts)}-seed{asked.seed}"
