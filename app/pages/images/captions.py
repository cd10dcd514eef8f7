"""Sentences of the Images page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from app.core.switches import HOWS, How
from app.pages.images.service import Batch, Run

if TYPE_CHECKING:
    from aotlens.heads import SemanticConsistency
    from aotlens.paths import PatchContributions

#: What stands in a head's place, of images.
STAND_INS: dict[How, str] = {**HOWS, "resample": "output on another image"}


def of_batch(batch: Batch, trained_on: str, known: bool, run: Run) -> str:
    """What is shown, and how well it is recognised; where the model was made for something else, that."""
    n, first = len(batch.indices), batch.asked.start + 1
    kind = "" if batch.asked.of is None else f" of class ‹{batch.names[batch.asked.of]}›"
    which = f"Test images {first} to {first + n - 1} of {batch.n_all:,}{kind} in {batch.asked.data}"
    if not known:
        return (
            f"{which}. The model was trained on {trained_on or 'other images'} and knows other classes: its maps can "
            "be looked at, its predictions mean nothing here."
        )
    predicted = run.logits[batch.n_own :].argmax(1)
    right = int((predicted == np.array(batch.labels[batch.n_own :])).sum())
    told = f"{which}; {right} of these {n} are recognised."
    if not batch.are_names_lent:
        return told
    return f"{told} The data only number their classes: they are taken for the model's, in its order."


def without(run: Run) -> str:
    """Which heads a run is without; nothing for the whole model."""
    if not run.off:
        return ""
    names = ", ".join(f"{layer}.{head}" for layer, head in run.off)
    return f"{names} ablated by {STAND_INS[run.how]}"


def of_prediction(batch: Batch, image: int, classes: tuple[str, ...], known: bool, run: Run, whole: Run) -> str:
    """What the model makes of one image, whole and without the heads that are off."""
    probabilities = whole.probabilities[image]
    best = int(probabilities.argmax())
    label = batch.labels[image]
    truth = "" if label is None else f"Its class is ‹{batch.names[label]}›. "
    text = f"{truth}The whole model takes it for ‹{classes[best]}›, with probability {probabilities[best]:.3f}."
    if not run.off:
        return text
    other = int(run.probabilities[image].argmax())
    told = f" {without(run)}: ‹{classes[other]}›, with probability {run.probabilities[image, other]:.3f}."
    if known and label is not None:
        changed = int((run.logits.argmax(1) != whole.logits.argmax(1)).sum())
        told += f" Of the {len(run.logits)} images above, {changed} are taken for another class."
    return text + told


def of_paths(found: PatchContributions, row: int, name: str) -> list[str]:
    """Where a logit comes from, in numbers that add up to it."""
    parts, above = found.logit, found.above_mean
    mlps = f"MLPs {float(parts.mlps[0, row]):+.3f}, " if parts.mlps.any() else ""
    return [
        f"Logit of ‹{name}›: {float(parts.total[0, row]):+.3f} = patches {float(parts.patches[0, row].sum()):+.3f}, "
        f"[CLS] {float(parts.class_token[0, row]):+.3f}, positions {float(parts.positions[0, row]):+.3f}, {mlps}biases "
        f"{float(parts.biases[0, row]):+.3f}.",
        f"Above the mean over all classes it is {float(above.total[0, row]):+.3f}, of which the map shows the patches' "
        f"part, {float(above.patches[0, row].sum()):+.3f}. The share of what does not come from patches is "
        f"{float(above.share_outside[0, row]):.0%}.",
    ]


def of_consistency(found: SemanticConsistency, data: str) -> str:
    """How many heads are consistent beyond chance, on how much."""
    n_found = int((found.adjusted_p <= 0.05).sum())
    return (
        f"{n_found} of {found.within.size} heads look at the same part of the images of a class more than labels drawn "
        f"at random would have it (false discovery rate 5%), on {found.n_images} test images of {data} in "
        f"{found.n_classes} classes. Query: {found.query}."
    )


def head_name(layer: Any, head: Any) -> str:
    """1.3."""
    return f"{int(layer)}.{int(head)}"
