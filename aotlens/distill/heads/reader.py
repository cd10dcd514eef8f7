"""What a head reads and writes, layer by layer, from a model of ours or any TransformerLens bridge.

    x   `[batch, pos, d_model]`       the attention layer's input: the residual stream after its norm, without what is
                                      added to queries and keys only (a post-norm model's stream is normalised already)
    z   `[batch, pos, head, d_head]`  pattern · v, so that the head writes y = z W_O

Both come from hook points, so they are what the model really used, other hooks' changes included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge

from aotlens.conventions import Head
from aotlens.models import AttentionOnlyTransformer, hook_names

#: Any model whose heads can be distilled.
Model: TypeAlias = AttentionOnlyTransformer | TransformerBridge
Hooks: TypeAlias = list[tuple[str, Callable[..., Any]]]


class _Done(Exception):
    """Everything that was asked for has been seen; the rest of the forward pass is not needed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadReader:
    """One face for both kinds of model. Make it with `HeadReader.of`."""

    model: Any
    n_layers: int
    n_heads: int
    d_model: int
    d_head: int
    n_ctx: int
    d_vocab: int
    causal: bool
    is_bridge: bool

    @classmethod
    def of(cls, model: Any) -> HeadReader:
        """Raises `ValueError` for what is neither kind, does not read tokens, or has no heads to hook."""
        cfg = getattr(model, "cfg", None)
        if isinstance(model, AttentionOnlyTransformer):
            if model.cfg.read_in != "tokens" or model.cfg.d_vocab is None:
                raise ValueError(f"distillation needs a model of tokens; this one reads {model.cfg.read_in}.")
            causal, is_bridge = not model.sees_later_keys, False
        elif isinstance(model, TransformerBridge):
            causal, is_bridge = getattr(cfg, "attention_dir", "causal") == "causal", True
        else:
            raise ValueError(
                "expected an AttentionOnlyTransformer or a TransformerLens TransformerBridge, got "
                f"{type(model).__name__}."
            )
        assert cfg is not None
        reader = cls(
            model=model,
            n_layers=int(cfg.n_layers),
            n_heads=int(cfg.n_heads),
            d_model=int(cfg.d_model),
            d_head=int(cfg.d_head),
            n_ctx=int(cfg.n_ctx),
            d_vocab=int(cfg.d_vocab),
            causal=causal,
            is_bridge=is_bridge,
        )
        missing = [name for name in (reader.input_name(0), reader.z_name(0)) if name not in model.hook_dict]
        if missing:
            raise ValueError(f"this {type(model).__name__} has no {', '.join(missing)}: its heads cannot be read.")
        return reader

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    def input_name(self, layer: int) -> str:
        """The hook point from which `as_input` makes x."""
        if self.is_bridge:
            return hook_names.attn(layer, "hook_in")
        return hook_names.block(layer, "ln1.hook_normalized") if self.model.cfg.norm else hook_names.resid_pre(layer)

    def z_name(self, layer: int) -> str:
        return hook_names.attn(layer, hook_names.Z)

    def pattern_name(self, layer: int) -> str:
        return hook_names.attn(layer, hook_names.PATTERN)

    def as_input(self, layer: int, hooked: Tensor) -> Float[Tensor, "batch pos d_model"]:
        """x, from what `input_name`'s hook point shows: our norm's comes before its gain and bias."""
        if self.is_bridge or not self.model.cfg.norm:
            return hooked
        norm = self.model.blocks[layer].ln1
        return hooked * norm.w + norm.b

    def W_O(self, layer: int) -> Float[Tensor, "head d_head d_model"]:
        return self.model.blocks[layer].attn.W_O.detach()

    def require_heads(self, heads: Sequence[Head] | None) -> tuple[Head, ...]:
        """The heads in order of layer and head; all of them for None. Raises `ValueError` for one it lacks."""
        if heads is None:
            return tuple((layer, head) for layer in range(self.n_layers) for head in range(self.n_heads))
        chosen: list[Head] = []
        for pair in heads:
            try:
                layer, head = (int(number) for number in pair)
            except (TypeError, ValueError):
                raise ValueError(f"heads: expected (layer, head) pairs, got {pair!r}.") from None
            if not (0 <= layer < self.n_layers and 0 <= head < self.n_heads):
                raise ValueError(
                    f"head {layer}.{head}: this model has layers 0–{self.n_layers - 1} and heads 0–{self.n_heads - 1}."
                )
            chosen.append((layer, head))
        if not chosen:
            raise ValueError("heads: expected at least one (layer, head) pair, got none.")
        return tuple(sorted(set(chosen)))

    @torch.no_grad()
    def read(
        self, tokens: Int[Tensor, "batch pos"], layers: Collection[int]
    ) -> dict[int, tuple[Float[Tensor, "batch pos d_model"], Float[Tensor, "batch pos head d_head"]]]:
        """(x, z) of each of `layers`; one forward pass as far as the last of them."""
        seen: dict[int, tuple[Tensor, Tensor]] = {}
        inputs: dict[int, Tensor] = {}
        last = max(layers)

        def hooks() -> Iterator[tuple[str, Callable[..., Any]]]:
            for layer in layers:

                def take_input(value: Tensor, hook: object, layer: int = layer) -> None:
                    inputs[layer] = self.as_input(layer, value)

                def take_z(value: Tensor, hook: object, layer: int = layer) -> None:
                    seen[layer] = (inputs.pop(layer), value)
                    if layer == last and not self.is_bridge:
                        raise _Done

                yield self.input_name(layer), take_input
                yield self.z_name(layer), take_z

        self.run(tokens, list(hooks()))
        return seen

    @torch.no_grad()
    def run(self, tokens: Int[Tensor, "batch pos"], hooks: Hooks, return_type: str | None = None) -> Any:
        """A forward pass with hooks, which are gone afterwards; logits with `return_type="logits"`."""
        try:
            return self.model.run_with_hooks(tokens.to(self.device), return_type=return_type, fwd_hooks=hooks)
        except _Done:
            return None
