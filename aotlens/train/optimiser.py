"""AdamW with weight decay on matrices only, and the learning rate at each step."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from aotlens.train.recipe import Recipe, Stage


def make_optimiser(model: nn.Module, recipe: Recipe) -> torch.optim.AdamW:
    """Two groups: matrices (and embeddings), which decay, and biases, gains and positions, which do not.

    One fused kernel updates each parameter: the default reads and writes the moments several times.
    """
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        last = name.rsplit(".", 1)[-1]
        is_matrix = parameter.ndim >= 2 and not last.startswith("b") and last not in ("W_pos", "fixed_pattern")
        (matrices if is_matrix else others).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=recipe.stages[0].learning_rate,
        betas=recipe.betas,
        fused=all(parameter.device.type in ("cpu", "cuda") for parameter in model.parameters()),
    )


def learning_rate(stage: Stage, step: int) -> float:
    """At step 0, 1, … of a stage: linear over the warm-up, then a cosine down to `final_fraction` of the peak."""
    warmup = stage.warmup_steps
    if step < warmup:
        return stage.learning_rate * (step + 1) / warmup
    share = (step - warmup) / max(1, stage.n_steps - warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
    return stage.learning_rate * (stage.final_fraction + (1 - stage.final_fraction) * cosine)
