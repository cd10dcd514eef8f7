"""The state from which a killed run resumes: weights, optimiser moments, and where it was, in one file, never pickle;
and the steps at which a run keeps a snapshot of its weights: given ones, evenly in log step, or as its loss falls.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aotlens.conventions import MOST_DRAWS
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


#: Share of the smoothed loss that a new loss takes.
_SMOOTHING = 0.1


def check_snapshots(rule: Sequence[int] | str | None, n_steps: int) -> None:
    """Raise `ValueError` for what is no rule of snapshots of a run of so many steps."""
    if rule is None:
        return
    if isinstance(rule, str):
        _parse(rule)
        return
    whole = all(isinstance(step, int) and not isinstance(step, bool) for step in rule)
    if not whole or not rule or list(rule) != sorted({*rule}) or rule[0] < 0 or rule[-1] > n_steps:
        raise ValueError(
            f"snapshots={list(rule)}: expected steps of the run in rising order, from 0 to {n_steps:,}, or a rule as "
            "'log:60' or 'loss:60'."
        )


def planned_steps(rule: Sequence[int] | str | None, n_steps: int) -> frozenset[int]:
    """Return the steps of which a run keeps the weights whatever its loss does."""
    if rule is None or not isinstance(rule, str):
        return frozenset(rule or ())
    kind, number = _parse(rule)
    return frozenset(log_steps(number if kind == "log" else number // 2, n_steps))


def log_steps(number: int, n_steps: int) -> list[int]:
    """Return 0 and `number − 1` steps up to the last, each the same factor from the one before it, as near as whole
    steps allow; all steps of a run that has no more."""
    if number > n_steps:
        return list(range(n_steps + 1))
    steps = [0, 1]
    for left in range(number - 2, 0, -1):
        factor = (n_steps / steps[-1]) ** (1 / left)
        steps.append(max(steps[-1] + 1, round(steps[-1] * factor)))
    return steps[:number]


def loss_has_fallen(rule: Sequence[int] | str | None, fall: dict[str, float], loss: float) -> bool:
    """Return whether the smoothed loss has fallen, since this was last true, by a share of the first loss: 1 ÷ half the
    snapshots of a rule `loss:N`, so that no more than N are kept in all. `fall`, kept with the run, is changed."""
    if not isinstance(rule, str) or _parse(rule)[0] != "loss":
        return False
    if not fall:
        fall |= {"unit": loss / (_parse(rule)[1] - _parse(rule)[1] // 2), "smoothed": loss, "level": loss}
    fall["smoothed"] += _SMOOTHING * (loss - fall["smoothed"])
    falls = math.floor((fall["level"] - fall["smoothed"]) / fall["unit"]) if fall["unit"] > 0 else 0
    if falls < 1:
        return False
    fall["level"] -= falls * fall["unit"]
    return True


def _parse(rule: str) -> tuple[str, int]:
    match = re.fullmatch(r"(log|loss):([0-9]{1,7})", rule, re.ASCII)
    if match is None or not 4 <= int(match[2]) <= MOST_DRAWS:
        raise ValueError(
            f"snapshots={rule!r}: expected 'log:60', 60 snapshots evenly in log step, or 'loss:60', half of them so "
            "and the others as the loss falls (4 or more), or a list of steps."
        )
    return match[1], int(match[2])
