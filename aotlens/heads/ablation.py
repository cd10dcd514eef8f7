"""What a model loses without some of its heads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import index
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, hook_names


@dataclass(frozen=True, kw_only=True, eq=False)
class Ablation:
    """Losses with and without `heads`, in nats a token."""

    heads: tuple[tuple[int, int], ...]
    """(layer, head) of every ablated head."""
    how: str
    clean_loss_per_token: Float[Tensor, "batch targets"]
    ablated_loss_per_token: Float[Tensor, "batch targets"]

    @property
    def clean_loss(self) -> float:
        """Mean next-token loss of the whole model."""
        return self.clean_loss_per_token.cpu().double().mean().item()

    @property
    def ablated_loss(self) -> float:
        """Mean next-token loss without the heads."""
        return self.ablated_loss_per_token.cpu().double().mean().item()

    @property
    def change(self) -> float:
        """How much loss the ablation adds (negative where the model does better without)."""
        return self.ablated_loss - self.clean_loss


@torch.no_grad()
def ablate(
    model: AttentionOnlyTransformer,
    tokens: Int[Tensor, "batch pos"],
    heads: Iterable[Any],
    how: str = "zero",
) -> Ablation:
    """Replace the output z of some heads and measure the next-token loss on `tokens`.

    `heads` is (layer, head) pairs, or one. `"zero"` sets z = pattern · v to 0, so that the head writes nothing;
    `"mean"` sets it to its mean over all positions of `tokens` in the clean run, so that the head writes a constant.
    b_O stays either way. With several layers of heads, later means are still those of the clean run.

    Raises `ValueError` for a head that the model does not have, or another `how`.
    """
    if how not in ("zero", "mean"):
        raise ValueError(f"how={how!r}: expected 'zero' or 'mean'.")
    pairs = _as_pairs(model, heads)
    by_layer: dict[int, list[int]] = defaultdict(list)
    for layer, head in pairs:
        by_layer[layer].append(head)
    tokens = tokens.to(model.device)
    names = [hook_names.attn(layer, hook_names.Z) for layer in by_layer]
    clean, cache = model.run_with_cache(
        tokens, return_type="loss", loss_per_token=True, names_filter=names, return_cache_object=False
    )

    def replacement(layer: int, chosen: list[int]) -> tuple[str, Callable[..., Tensor]]:
        name = hook_names.attn(layer, hook_names.Z)
        mean = cache[name][:, :, chosen].mean((0, 1))  # [chosen, d_head]

        def replace(z: Tensor, hook: object) -> Tensor:
            z = z.clone()
            z[:, :, chosen] = 0.0 if how == "zero" else mean.to(z.dtype)
            return z

        return name, replace

    hooks: list[tuple[str | Callable[..., object], Callable[..., object]]] = [
        replacement(layer, chosen) for layer, chosen in by_layer.items()
    ]
    ablated = model.run_with_hooks(tokens, return_type="loss", loss_per_token=True, fwd_hooks=hooks)
    return Ablation(heads=pairs, how=how, clean_loss_per_token=clean, ablated_loss_per_token=ablated)


def _as_pairs(model: AttentionOnlyTransformer, heads: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    listed = list(heads)
    if len(listed) == 2 and not any(isinstance(item, Iterable) for item in listed):
        listed = [listed]
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    pairs = []
    for pair in listed:
        try:
            layer, head = (index(item) for item in pair)
        except (TypeError, ValueError):
            raise ValueError(f"expected (layer, head) pairs of whole numbers, got {pair!r}.") from None
        if not (0 <= layer < n_layers and 0 <= head < n_heads):
            raise ValueError(f"head {layer}.{head}: this model has layers 0–{n_layers - 1} and heads 0–{n_heads - 1}.")
        pairs.append((layer, head))
    if not pairs:
        raise ValueError("expected at least one (layer, head) pair, got none.")
    return tuple(dict.fromkeys(pairs))
