"""AdamW or Lion with weight decay on matrices only, and the learning rate at each step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from aotlens.train.recipe import Recipe
from aotlens.train.sections import Stage


class Lion(torch.optim.Optimizer):
    """Steps of one size for every weight, by the sign of a mean of gradients (Chen et al. 2023, Program 1).

    With gradient g, momentum m, learning rate η and weight decay λ:

        w ← w − η (sign(β₁ m + (1 − β₁) g) + λ w),    m ← β₂ m + (1 − β₂) g

    The paper takes a learning rate 3 to 10 times smaller than AdamW's, a weight decay as many times larger, and β of
    0.9 and 0.99. One moment is kept, under AdamW's name for it.
    """

    def __init__(
        self, parameters: Iterable[dict[str, Any]] | Iterable[nn.Parameter], lr: float, betas: tuple[float, float]
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take one step, which needs one gradient only. Raises ValueError for a `closure`."""
        if closure is not None:
            raise ValueError("Lion: expected a step without a closure: it evaluates no loss again.")
        for group in self.param_groups:
            beta_step, beta_mean = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                mean = self.state[parameter].setdefault("exp_avg", torch.zeros_like(parameter))
                direction = torch.lerp(parameter.grad, mean, beta_step).sign_()
                parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-group["lr"])
                mean.lerp_(parameter.grad, 1 - beta_mean)


def make_optimiser(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Make the optimiser of two groups: matrices (and embeddings), which decay, and biases, gains, [CLS] and positions,
    which do not.

    Of AdamW, one fused kernel updates each parameter: the default reads and writes the moments several times.
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
    groups = [group for group in groups if group["params"]]
    if recipe.optimiser == "lion":
        return Lion(groups, lr=recipe.stages[0].learning_rate, betas=recipe.betas)
    return torch.optim.AdamW(
        groups,
        lr=recipe.stages[0].learning_rate,
        betas=recipe.betas,
        fused=all(parameter.device.type in ("cpu", "cuda") for parameter in model.parameters()),
    )


def learning_rate(stage: Stage, step: int) -> float:
    """Return the learning rate at step 0, 1, … of a stage: linear over the warm-up, then a cosine down to
    `final_fraction` of the peak."""
    warmup = stage.warmup_steps
    if step < warmup:
        return stage.learning_rate * (step + 1) / warmup
    share = (step - warmup) / max(1, stage.n_steps - warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
    return stage.learning_rate * (stage.final_fraction + (1 - stage.final_fraction) * cosine)
