"""The state from which a killed run resumes: weights, optimiser moments, and where it was. One file, never pickle."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn


class StateError(ValueError):
    """A training state that cannot be written or resumed from."""


def save_state(
    path: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    progress: dict[str, Any],
    settings: dict[str, Any],
) -> None:
    """Write everything to `path` at once or not at all; raises `StateError` for a full disk.

    `settings` is what the run was started with; `load_state` refuses another.
    """
    tensors: dict[str, Tensor] = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    for parameter, moments in optimiser.state.items():
        for key, value in moments.items():
            tensors[f"optimiser.{key}.{names[parameter]}"] = torch.as_tensor(value)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(contiguous, temporary, metadata={"progress": json.dumps(progress), "settings": json.dumps(settings)})
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise StateError(
            f"{path}: the training state could not be written ({error}); the last saved one is whole. "
            "Make room and run again with --resume."
        ) from error


def load_state(
    path: Path, model: nn.Module, optimiser: torch.optim.Optimizer, settings: dict[str, Any]
) -> dict[str, Any]:
    """Fill `model` and `optimiser` from `path` and return its progress.

    Raises `StateError` for a file that can't be read, and for a run started with other settings, naming them.
    """
    try:
        with safe_open(path, framework="pt") as file:
            progress = json.loads((file.metadata() or {})["progress"])
            saved = json.loads((file.metadata() or {})["settings"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise StateError(f"{path}: not a training state that can be read ({error}); start again without it.") from error
    expected = json.loads(json.dumps(settings))
    different = sorted(key for key in {*saved, *expected} if saved.get(key) != expected.get(key))
    if different:
        raise StateError(
            f"{path}: the run was started with another {', '.join(different)}; resume it with the recipe, the options "
            "and the corpus that it was started with, or choose another --out."
        )
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise StateError(f"{path}: was saved by another model ({error}).") from error
    for name, parameter in model.named_parameters():
        moments = {}
        for key in ("step", "exp_avg", "exp_avg_sq"):
            value = tensors.get(f"optimiser.{key}.{name}")
            if value is not None:
                moments[key] = value if key == "step" else value.to(parameter.device)
        if moments:
            optimiser.state[parameter] = moments
    return progress
