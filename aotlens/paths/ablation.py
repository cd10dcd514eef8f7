"""Taking a path or a head out: what the linear model says, and what the model itself then does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import Head
from aotlens.models import AttentionOnlyTransformer, hook_names


@dataclass(frozen=True, kw_only=True, eq=False)
class AblatedLogits:
    """Logits with and without a path or head.

    `linear` subtracts its contribution, patterns and scales frozen. `actual` is a forward pass: without a path, the
    last norm sees a stream that lacks it; without a head, every later layer does.
    """

    clean: Float[Tensor, "pos out"]
    linear: Float[Tensor, "pos out"]
    actual: Float[Tensor, "pos out"]
    tokens: tuple[int, ...]

    def losses(self) -> tuple[float, float, float]:
        """Mean next-token loss in nats: clean, linear, actual.

        Raises `ValueError` without at least two tokens whose next ones the outputs predict.
        """
        if len(self.tokens) < 2 or len(self.tokens) != len(self.clean):
            raise ValueError("losses: expected a prompt of at least 2 tokens and an output at each.")
        targets = torch.tensor(self.tokens[1:], device=self.clean.device)
        clean, linear, actual = (
            float(F.cross_entropy(logits[:-1], targets)) for logits in (self.clean, self.linear, self.actual)
        )
        return clean, linear, actual


@torch.no_grad()
def without_path(model: AttentionOnlyTransformer, inputs: Tensor, written: Float[Tensor, "pos d_model"]) -> Tensor:
    """The model's output where its final stream lacks `written`: the last norm is live, all before it is as it was."""

    def subtract(stream: Tensor, hook: object) -> Tensor:
        return stream - written.to(stream.dtype)

    return _run(model, inputs, hook_names.resid_post(model.cfg.n_layers - 1), subtract)


@torch.no_grad()
def without_head(model: AttentionOnlyTransformer, inputs: Tensor, head: Head) -> Tensor:
    """The model's output where a head writes nothing."""
    layer, index = head

    def silence(z: Tensor, hook: object) -> Tensor:
        z = z.clone()
        z[:, :, index] = 0.0
        return z

    return _run(model, inputs, hook_names.attn(layer, hook_names.Z), silence)


def _run(model: AttentionOnlyTransformer, inputs: Tensor, name: str, function: Callable[..., Tensor]) -> Tensor:
    logits = model.run_with_hooks(inputs, fwd_hooks=[(name, function)])
    logits = logits if logits.dtype == torch.float64 else logits.float()
    return logits if model.cfg.read_out == "classes" else logits[0]
