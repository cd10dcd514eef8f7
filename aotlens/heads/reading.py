"""One way to listen to every layer, in a model of ours and in any TransformerLens bridge (BERT, GPT-2, …).

Both have TransformerLens's hook names, so that a measure of patterns, values or streams is the same for both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge

from aotlens.models import AttentionOnlyTransformer

#: Any model whose heads can be read.
AnyModel: TypeAlias = AttentionOnlyTransformer | TransformerBridge


def require_tokens(model: Any, what: str) -> None:
    """Raise `ValueError` for a model that does not read tokens, or is of neither kind."""
    if not isinstance(model, AttentionOnlyTransformer | TransformerBridge):
        raise ValueError(
            f"{what}: expected an AttentionOnlyTransformer or a TransformerBridge, got {type(model).__name__}."
        )
    read_in = getattr(model.cfg, "read_in", "tokens")
    if read_in != "tokens":
        raise ValueError(f"{what}: expected a model of tokens; this one reads {read_in}.")


@torch.no_grad()
def listen_by_layer(
    model: AnyModel,
    tokens: Int[Tensor, "batch pos"],
    name: Callable[[int], str],
    listener: Callable[[int, Tensor], None],
) -> None:
    """Run `tokens`, without padding, and call `listener(layer, activation)` with `name(layer)`'s in each layer."""

    def hook_of(layer: int) -> Callable[..., None]:
        def hook(activation: Tensor, hook: Any) -> None:
            listener(layer, activation)

        return hook

    # Plain lists: the two kinds of model write the types of their hooks differently.
    hooks: Any = [(name(layer), hook_of(layer)) for layer in range(model.cfg.n_layers)]
    device = next(model.parameters()).device
    model.run_with_hooks(tokens.to(device), return_type=None, fwd_hooks=hooks)
