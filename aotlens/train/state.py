"""The state from which a killed run resumes: weights, optimiser moments, and where it was. One file, never pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aotlens.files import load_progress, save_progress
from aotlens.train.distributed import World

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


def save_state(
    path: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    counters: dict[str, Any],
    settings: dict[str, Any],
) -> None:
    """Write everything to `path` at once or not at all; raises `ValueError` for a full disk.

    `settings` is what the run was started with; `load_state` refuses another.
    """
    tensors: dict[str, Tensor] = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    for parameter, moments in optimiser.state.items():
        for key, value in moments.items():
            tensors[f"optimiser.{key}.{names[parameter]}"] = torch.as_tensor(value)
    try:
        save_progress(path, tensors, counters, settings)
    except OSError as error:
        again = "the last saved one is whole. Make room and run again with --resume."
        if not path.is_file():
            again = "none had been saved before. Make room and run it again."
        raise ValueError(f"{path}: the training state could not be written ({error}); {again}") from error


def load_state(
    path: Path, model: nn.Module, optimiser: torch.optim.Optimizer, settings: dict[str, Any]
) -> dict[str, Any]:
    """Fill `model` and `optimiser` from `path` and return the run's counters.

    Raises `ValueError` for a file that can't be read, and for a run started with other settings, naming them.
    """
    remedy = "resume it with the recipe, the options and the corpus that it was started with, or choose another --out."
    tensors, counters = load_progress(path, settings, "the run", remedy)
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"{path}: was saved by another model ({error}).") from error
    for name, parameter in model.named_parameters():
        moments = {}
        for key in _MOMENTS:
            value = tensors.get(f"optimiser.{key}.{name}")
            if value is not None:
                if value.shape != (() if key == "step" else parameter.shape):
                    raise ValueError(f"{path}: optimiser.{key}.{name}: expected the weights' shape, found another.")
                moments[key] = value.to(parameter.device)
        if moments:
            optimiser.state[parameter] = moments
    return counters


def copy_state(model: nn.Module, optimiser: torch.optim.Optimizer, world: World) -> None:
    """Give every process the weights and moments that the one which leads has loaded."""
    for tensor in model.state_dict().values():
        world.copy_from_leader(tensor)
    state_keys = world.on_leader(
        lambda: {name: [*optimiser.state.get(own, ())] for name, own in model.named_parameters()}
    )
    for name, parameter in model.named_parameters():
        for key in state_keys[name]:
            like = torch.zeros((), device=parameter.device) if key == "step" else torch.zeros_like(parameter)
            world.copy_from_leader(optimiser.state[parameter].setdefault(key, like))
