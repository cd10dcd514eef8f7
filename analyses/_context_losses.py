"""Losses of trained layers on prompts of other context lengths, and of subspaces of other dimensions (Figure 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.denoise.bayes import bayes_loss
from aotlens.denoise.one_layer import attend, attend_linear, second_moment
from aotlens.denoise.tasks import Task
from aotlens.denoise.training import TrainedLayers
from aotlens.results import Result


@dataclass(frozen=True, kw_only=True)
class ContextLosses(Result):
    """Trained layers' loss by context length, on several tasks; squared errors a prompt, summed over n."""

    tasks: tuple[str, ...]
    n_contexts: tuple[int, ...]
    seeds: tuple[int, ...]
    """The seeds of the runs."""
    loss: Float[Tensor, "task run context"]
    bayes: Float[Tensor, " task"]
    """The least expected loss, whatever the context."""


def losses_by_context(
    layers: TrainedLayers,
    n_contexts: Sequence[int],
    *,
    tasks: Mapping[str, Task],
    n_prompts: int = 2000,
    seed: int = 0,
) -> ContextLosses:
    """Measure trained layers on fresh prompts with contexts of `n_contexts` tokens.

    `tasks` are by their names in the result. The contexts of one prompt are the beginnings of its longest. Linear
    attention takes O(prompts · L · n²), softmax O(runs · prompts · Σ L · n).
    """
    W_QK, W_OV = layers.W_QK[:, None].double(), layers.W_OV[:, None].double()
    losses = torch.zeros(len(tasks), len(layers.seeds), len(n_contexts), dtype=torch.float64)
    for index, task in enumerate(tasks.values()):
        prompts = task.sample(n_prompts, max(n_contexts), seed)
        for place, length in enumerate(n_contexts):
            context = prompts.context[None, :, :length]
            if layers.kind == "linear":
                estimate = attend_linear(second_moment(context), prompts.query[None], W_QK, W_OV)
            else:
                estimate = attend(context, prompts.query[None], W_QK, W_OV, layers.kind)
            losses[index, :, place] = (estimate - prompts.target).pow(2).sum(-1).mean(-1)
    return ContextLosses(
        tasks=tuple(tasks),
        n_contexts=tuple(n_contexts),
        seeds=layers.seeds,
        loss=losses,
        bayes=torch.tensor([bayes_loss(task).value for task in tasks.values()], dtype=torch.float64),
    )
