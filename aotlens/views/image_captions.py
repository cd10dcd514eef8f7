"""Sentences about images: recognition, maps of a head, what patches add to a class, predictions, consistency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotlens.conventions import ABLATIONS, head_name, minus

if TYPE_CHECKING:
    from aotlens.heads import ClassPredictions, HeadOnImage, ImageRun, SemanticConsistency
    from aotlens.paths import ClassPatches

#: The replacements of an ablated head's output.
HOWS = {**ABLATIONS, "resample": "output on another image"}


def says_images(params: Any, run: ImageRun) -> str:
    """Say which images are shown, and which are recognised."""
    data, first, n_own = params.named, (params.start or 0) + 1, run.truth.count(None)
    n = len(run.images) - n_own
    of_all = "" if params.n_all is None else f" of {params.n_all:,}"
    kind = "" if params.of is None else f" of class ‹{(run.label_names or run.classes)[params.of]}›"
    which = f"Test images {first} to {first + n - 1}{of_all}{kind} in {data.name}"
    if not run.has_model_classes:
        return (
            f"{which}. The model was trained on {params.trained_on or 'other images'} and knows other classes: its "
            "maps can be looked at, its predictions mean nothing here."
        )
    numbers = ", ".join(str(image + 1) for image in run.wrong)
    wrong = f" (images {numbers} are not)" if len(run.wrong) > 1 else f" (image {numbers} is not)" if numbers else ""
    sentence = f"{which}; {n - len(run.wrong)} of these {n} are recognised{wrong}."
    if not data.numbered:
        return sentence
    return f"{sentence} The data only number their classes: they are taken for the model's, in its order."


def says_ablated(params: Any) -> str:
    """Say which heads are ablated, and how; nothing for the full model."""
    if not params.ablated:
        return ""
    names = ", ".join(map(head_name, params.ablated))
    which = "head" if len(params.ablated) == 1 else "heads"
    return f"{which} {names} ablated by {HOWS[params.how]}"


def says_head(params: Any, result: HeadOnImage) -> str:
    """Say whose attention the maps show, and of which run."""
    ablated = says_ablated(params)
    return ". ".join(filter(None, [f"Query: {result.query}", ablated[:1].upper() + ablated[1:]])) + "."


def says_predictions(params: Any, result: ClassPredictions) -> str:
    """Say what the model predicts for one image, in full and with heads ablated."""
    name, probability = result.best()
    truth = "" if result.truth is None else f"Its class is ‹{result.truth}›. "
    text = f"{truth}The full model predicts ‹{name}›, with probability {probability:.3f}."
    if result.ablated is None:
        return text
    other, lower = result.best(ablated=True)
    told = f" With {says_ablated(params)}: ‹{other}›, with probability {lower:.3f}."
    changes = f" The prediction changes for {result.n_changed} of {result.n_images} images."
    return text + told + changes


def says_patches(params: Any, result: ClassPatches) -> str:
    """Say where a logit comes from, in numbers that add up to it."""
    name = class_name(params, result.number)
    parts, above = ({name: minus(float(values[0, 0].sum()), "+.3f") for name, values in _terms(of)} for of in (
        result.logit, result.above_mean,
    ))  # fmt: skip
    mlps = f"MLPs {parts['mlps']}, " if float(result.logit.mlps[0, 0].sum()) else ""
    share = float(result.above_mean.share_outside[0, 0])
    outside = (
        f" The share of what does not come from patches is {share:.0%}." if share == share else " That is rounding."
    )
    return (
        f"Logit of ‹{name}›: {parts['total']} = patches {parts['patches']}, [CLS] {parts['class_token']}, positions "
        f"{parts['positions']}, {mlps}biases {parts['biases']}. Above the mean over all classes it is "
        f"{above['total']}, of which the map shows the patches’ part, {above['patches']}.{outside}"
    )


def class_name(params: Any, number: int) -> str:
    """Name a class of the model by name, or its number where the names are not known."""
    return str(params.classes[number]) if number < len(params.classes) else str(number)


def _terms(parts: Any) -> list[tuple[str, Any]]:
    return [
        (name, getattr(parts, name))
        for name in ("patches", "class_token", "positions", "mlps", "biases", "total")
    ]  # fmt: skip


def says_consistency(params: Any, result: SemanticConsistency) -> str:
    """Say how many heads are consistent beyond chance, on how much."""
    n_found = int((result.adjusted_p <= 0.05).sum())
    return (
        f"{n_found} of {result.within.size} heads attend to the same part of the images of a class more often than "
        f"under labels drawn at random (false discovery rate 5%), on {result.n_images} test images of "
        f"{params.named.name} in {result.n_classes} classes. Query: {result.query}."
    )
