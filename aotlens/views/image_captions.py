"""Sentences about images: maps of a head, what patches add to a class, predictions, consistency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aotlens.conventions import ABLATIONS, head_name

if TYPE_CHECKING:
    from aotlens.heads import ClassPredictions, HeadOnImage, SemanticConsistency
    from aotlens.paths import ClassPatches

#: The replacements of an ablated head's output.
HOWS = {**ABLATIONS, "resample": "output on another image"}


def says_ablated(chosen: Any) -> str:
    """Say which heads are ablated, and how; nothing for the full model."""
    if not chosen.ablated:
        return ""
    names = ", ".join(map(head_name, chosen.ablated))
    which = "head" if len(chosen.ablated) == 1 else "heads"
    return f"{which} {names} ablated by {HOWS[chosen.how]}"


def says_head(chosen: Any, result: HeadOnImage) -> str:
    """Say whose attention the maps show, and of which run."""
    ablated = says_ablated(chosen)
    return ". ".join(filter(None, [f"Query: {result.query}", ablated[:1].upper() + ablated[1:]])) + "."


def says_predictions(chosen: Any, result: ClassPredictions) -> str:
    """Say what the model predicts for one image, in full and with heads ablated."""
    name, probability = result.best()
    truth = "" if chosen.label is None else f"Its class is ‹{chosen.label}›. "
    text = f"{truth}The full model predicts ‹{name}›, with probability {probability:.3f}."
    if result.ablated is None:
        return text
    other, lower = result.best(ablated=True)
    told = f" With {says_ablated(chosen)}: ‹{other}›, with probability {lower:.3f}."
    changes = f" The prediction changes for {result.n_changed} of {chosen.n_images} images."
    return text + told + changes


def says_patches(chosen: Any, result: ClassPatches) -> str:
    """Say where a logit comes from, in numbers that add up to it."""
    name = class_name(chosen, result.number)
    parts, above = ({name: float(values[0, 0].sum()) for name, values in _terms(of)} for of in (
        result.logit, result.above_mean,
    ))  # fmt: skip
    mlps = f"MLPs {parts['mlps']:+.3f}, " if parts["mlps"] else ""
    share = float(result.above_mean.share_outside[0, 0])
    outside = (
        f" The share of what does not come from patches is {share:.0%}." if share == share else " That is rounding."
    )
    return (
        f"Logit of ‹{name}›: {parts['total']:+.3f} = patches {parts['patches']:+.3f}, [CLS] "
        f"{parts['class_token']:+.3f}, positions {parts['positions']:+.3f}, {mlps}biases {parts['biases']:+.3f}. Above "
        f"the mean over all classes it is {above['total']:+.3f}, of which the map shows the patches’ part, "
        f"{above['patches']:+.3f}.{outside}"
    )


def class_name(chosen: Any, number: int) -> str:
    """Name a class of the model by name, or its number where the names are not known."""
    return str(chosen.classes[number]) if number < len(chosen.classes) else str(number)


def _terms(parts: Any) -> list[tuple[str, Any]]:
    return [
        (name, getattr(parts, name))
        for name in ("patches", "class_token", "positions", "mlps", "biases", "total")
    ]  # fmt: skip


def says_consistency(chosen: Any, result: SemanticConsistency) -> str:
    """Say how many heads are consistent beyond chance, on how much."""
    n_found = int((result.adjusted_p <= 0.05).sum())
    return (
        f"{n_found} of {result.within.size} heads attend to the same part of the images of a class more often than "
        f"under labels drawn at random (false discovery rate 5%), on {result.n_images} test images of "
        f"{chosen.called or chosen.data} in "
        f"{result.n_classes} classes. Query: {result.query}."
    )
