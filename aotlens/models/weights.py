"""The stacked weights, under TransformerLens's names and shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from aotlens.models.config import ModelConfig


def widened(values: Tensor) -> Tensor:
    """Return half precision as float32, float32 and float64 as they are, without a gradient.

    A product in bfloat16 is wrong in its third digit, whatever it is widened to afterwards: widen the factors first.
    """
    values = values.detach()
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


def double(values: Tensor) -> Tensor:
    """Convert to float64 on the CPU, without a gradient: MPS has no float64."""
    return values.detach().cpu().double()


class StackedWeights:
    """`W_Q [n_layers, n_heads, d_model, d_head]` and so on, the same for every kind of attention.

    Absent biases read as zeros. Absent matrices (queries of a fixed pattern, positions of a model without
    any, MLPs of an attention-only model) raise `ValueError` saying so.
    """

    cfg: ModelConfig
    embed: Any
    pos_embed: Any
    unembed: Any
    blocks: Any

    def of_head(self, name: str, head: tuple[int, int]) -> Tensor:
        """Return one head's `W_Q`, `W_K`, `W_V`, `W_O`, `b_Q`, `b_K` or `b_V`: `getattr(model, name)[head]`, without a
        copy of those of all heads, which asking each head in turn would make anew each time."""
        layer, index = head
        tensor = getattr(self.blocks[layer].attn, name, None)
        return getattr(self, name)[head] if tensor is None else tensor[index]

    def _stack(self, part: str, name: str, missing: str | None = None) -> Tensor:
        tensors = self._found(part, name)
        if not tensors:
            raise ValueError(missing or f"this model has no {name}.")
        return torch.stack(tensors)

    def _found(self, part: str, name: str) -> list[Tensor]:
        """One tensor a layer, or nothing where the model has none."""
        tensors = [getattr(getattr(block, part), name, None) for block in self.blocks]
        return [tensor for tensor in tensors if tensor is not None]

    def _stack_bias(self, part: str, name: str, shape: tuple[int, ...]) -> Tensor:
        tensors = self._found(part, name)
        if tensors:
            return torch.stack(tensors)
        reference = next(self.blocks.parameters())
        return torch.zeros(self.cfg.n_layers, *shape, dtype=reference.dtype, device=reference.device)

    def _no_query_key(self, name: str) -> str:
        return f"{name}: a model with phi={self.cfg.phi!r} has no queries or keys; no input changes its pattern."

    @property
    def W_E(self) -> Tensor:
        """`[d_vocab, d_model]`, the token embedding."""
        if self.cfg.read_in != "tokens":
            raise ValueError(f"W_E: this model reads {self.cfg.read_in}, not tokens.")
        return self.embed.W_E

    @property
    def W_pos(self) -> Tensor:
        """`[n_ctx, d_model]`: added to the stream, or to queries and keys only (`cfg.positions`)."""
        if self.pos_embed is None:
            raise ValueError(f"W_pos: this model {self.cfg.position_kind.meaning}.")
        return self.pos_embed.W_pos

    @property
    def W_U(self) -> Tensor:
        """`[d_model, d_vocab]` (or `[d_model, d_out]`), the unembedding."""
        if self.cfg.tied_embeddings:
            return self.embed.W_E.T
        if self.unembed.W_U is None:
            raise ValueError("W_U: this model writes its residual stream out as it is.")
        return self.unembed.W_U

    @property
    def b_U(self) -> Tensor:
        """`[d_vocab]` (or `[d_out]`), zeros where the model has none."""
        if self.unembed.b_U is not None:
            return self.unembed.b_U
        return torch.zeros(self.W_U.shape[1], dtype=self.W_U.dtype, device=self.W_U.device)

    @property
    def W_Q(self) -> Tensor:
        """`[n_layers, n_heads, d_model, d_head]`."""
        if not self.cfg.has_query_key:
            raise ValueError(self._no_query_key("W_Q"))
        return self._stack("attn", "W_Q")

    @property
    def W_K(self) -> Tensor:
        """`[n_layers, n_heads, d_model, d_head]`."""
        if not self.cfg.has_query_key:
            raise ValueError(self._no_query_key("W_K"))
        return self._stack("attn", "W_K")

    @property
    def W_V(self) -> Tensor:
        """`[n_layers, n_heads, d_model, d_head]`."""
        return self._stack("attn", "W_V")

    @property
    def W_O(self) -> Tensor:
        """`[n_layers, n_heads, d_head, d_model]` (η·Uᵀ where the output is tied)."""
        return self._stack("attn", "W_O")

    @property
    def b_Q(self) -> Tensor:
        """`[n_layers, n_heads, d_head]`."""
        return self._stack_bias("attn", "b_Q", (self.cfg.n_heads, self.cfg.d_head))

    @property
    def b_K(self) -> Tensor:
        """`[n_layers, n_heads, d_head]`."""
        return self._stack_bias("attn", "b_K", (self.cfg.n_heads, self.cfg.d_head))

    @property
    def b_V(self) -> Tensor:
        """`[n_layers, n_heads, d_head]`."""
        return self._stack_bias("attn", "b_V", (self.cfg.n_heads, self.cfg.d_head))

    @property
    def b_O(self) -> Tensor:
        """`[n_layers, d_model]`."""
        return self._stack_bias("attn", "b_O", (self.cfg.d_model,))

    @property
    def W_in(self) -> Tensor:
        """`[n_layers, d_model, d_mlp]`."""
        return self._stack("mlp", "W_in", "W_in: this model is attention-only.")

    @property
    def W_gate(self) -> Tensor:
        """`[n_layers, d_model, d_mlp]`, of gated MLPs."""
        return self._stack("mlp", "W_gate", "W_gate: this model has no gated MLPs.")

    @property
    def W_out(self) -> Tensor:
        """`[n_layers, d_mlp, d_model]`."""
        return self._stack("mlp", "W_out", "W_out: this model is attention-only.")

    @property
    def b_in(self) -> Tensor:
        """`[n_layers, d_mlp]`."""
        return self._stack_bias("mlp", "b_in", (self.W_in.shape[-1],))

    @property
    def b_out(self) -> Tensor:
        """`[n_layers, d_model]`."""
        return self._stack_bias("mlp", "b_out", (self.cfg.d_model,))
