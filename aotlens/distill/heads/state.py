"""The state of a distillation, from which a killed one resumes: what `aotlens.files` keeps of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aotlens.distill.heads.training import Evaluation, Training
from aotlens.files import load_progress, save_progress


def save_training(path: Path, training: Training, identity: dict[str, Any]) -> None:
    """Save a run. `identity` is what the run was started with: `load_training` refuses another."""
    tensors = {f"scaling.{name}": tensor for name, tensor in training.scaling.tensors().items()}
    tensors |= {f"moments.{name}": tensor for name, tensor in training.moments.tensors().items()}
    batches = []
    for number, batch in enumerate(training.batches):
        own = {"W1": batch.W1, "W2": batch.W2, "best_W1": batch.best_W1, "best_W2": batch.best_W2}
        for name, parameter in (("W1", batch.W1), ("W2", batch.W2)):
            state = batch.optimiser.state.get(parameter, {})
            own |= {f"{name}.{key}": torch.as_tensor(value) for key, value in state.items()}
        own |= {"best": batch.best, "waited": batch.waited, "stopped_at": batch.stopped_at}
        tensors |= {f"batch.{number}.{name}": tensor for name, tensor in own.items()}
        batches.append(batch.active)
    counters = {
        "pieces_done": training.pieces_done,
        "seconds": training.seconds,
        "active": batches,
        "curve": [[e.tokens, e.seconds, e.squared_errors] for e in training.curve],
    }
    save_progress(path, tensors, counters, identity)


def load_training(path: Path, identity: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the counters of a run.

    Raises `ValueError` for a damaged file, and for another run's, naming what differs.
    """
    return load_progress(path, identity, "the distillation", "go on with the same, or choose another checkpoint file.")


def restore(training: Training, tensors: dict[str, Tensor], counters: dict[str, Any]) -> None:
    """Put a fresh `training` where the saved one was."""
    device = training.source.reader.device
    training.moments.load({name: tensors[f"moments.{name}"].to(device) for name in training.moments.tensors()})
    for number, batch in enumerate(training.batches):
        own = {
            name.removeprefix(f"batch.{number}."): tensor
            for name, tensor in tensors.items()
            if name.startswith(f"batch.{number}.")
        }
        batch._place(list(counters["active"][number]), own["W1"].to(device), own["W2"].to(device))
        for name, parameter in (("W1", batch.W1), ("W2", batch.W2)):
            if f"{name}.exp_avg" in own:
                moments = {key: own[f"{name}.{key}"].to(device) for key in ("exp_avg", "exp_avg_sq")}
                batch.optimiser.state[parameter] = {"step": own[f"{name}.step"], **moments}
        batch.best_W1, batch.best_W2 = own["best_W1"].to(device), own["best_W2"].to(device)
        batch.best, batch.waited, batch.stopped_at = own["best"], own["waited"], own["stopped_at"]
    training.pieces_done, training.seconds = counters["pieces_done"], counters["seconds"]
    training.curve = [
        Evaluation(tokens=tokens, seconds=seconds, squared_errors=errors)
        for tokens, seconds, errors in counters["curve"]
    ]
