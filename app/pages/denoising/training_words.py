"""What the tab of trained layers says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from app.pages.denoising.service_training import BEST, Trainings, scales

if TYPE_CHECKING:
    from aotlens.denoise import DenoiserTraining

TASKS = {"subspaces": "subspaces", "spheres": "spheres", "mixtures": "mixtures"}
#: What the paper says of its own runs (Figure 3 and its text), by task and attention.
_PAPER = {
    ("LinearSubspaces", "linear"): "αβ = 0.327",
    ("LinearSubspaces", "softmax"): "β = 0.194, α = 1.607",
    ("GaussianMixtures", "softmax"): "β = 5.127, α ≈ 1",
}


def options(service: Trainings, chosen: str | None) -> list[dict[str, str]]:
    """Every training; and what an address names, so that it can be seen where it isn't there."""
    names = list(service.list())
    known = [{"value": name, "label": name.replace("-", " ")} for name in names]
    return known if chosen is None or chosen in names else [*known, {"value": chosen, "label": f"{chosen} (not here)"}]


def meaning(record: DenoiserTraining) -> list[str]:
    """The answer in sentences: how far the runs are from Bayes, and what they found."""
    layers, frame = record.layers, record.to_frame()
    good = frame[~frame.stuck]
    n_stuck = len(frame) - len(good)
    end = frame.test_loss if not len(good) else good.test_loss
    said = [
        f"{_count(len(frame), 'run')} of {layers.kind} attention on {_kind(record)}, "
        f"{_count(layers.settings.n_epochs, 'epoch')}: test loss {_spread(end, 4)} a prompt; "
        f"Bayes {record.bayes.value:.4g}, the best scaled identities {record.optimum.loss:.4g}, "
        f"zero {record.baselines['zero']:.4g}."
    ]
    if n_stuck:
        said[0] += f" {_count(n_stuck, 'run')} stuck and left out."
    found = [point for name, point in scales(record).items() if name != BEST]
    if found:
        alpha, beta = (np.array(values) for values in zip(*found, strict=True))
        best = record.optimum
        if layers.kind == "linear":
            text = f"αβ = {_spread(alpha * beta, 3)}; the best is {best.beta:.4g}"
        else:
            text = f"β = {_spread(beta, 3)}, α = {_spread(alpha, 3)}; the best are {best.beta:.3g} and {best.alpha:.3g}"
        paper = _PAPER.get((type(layers.task).__name__, layers.kind))
        theirs = f" (the paper’s: {paper})" if paper and layers.transform is None else ""
        said.append(f"Mean diagonals found: {text}{theirs}.")
    return said


def _kind(record: DenoiserTraining) -> str:
    name = {"LinearSubspaces": "subspaces", "Spheres": "spheres", "GaussianMixtures": "mixtures"}
    task = name[type(record.layers.task).__name__]
    return task if record.layers.transform is None else f"transformed {task}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _spread(values: Any, digits: int) -> str:
    low, high = values.min(), values.max()
    mean = f"{values.mean():.{digits}g}"
    return mean if len(values) == 1 else f"{mean} ({low:.{digits}g} to {high:.{digits}g})"
