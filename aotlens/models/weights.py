"""The stacked weights, under TransformerLens's names and shapes; and initial weights, a function of the configuration
and its seed alone.

Matrices start at standard deviation 1/√(input width) (W_O and W_out divided by √(2·n_layers) more, as GPT-2
does, so that the stream does not grow with depth). Positions start at the scale of what they are added to:
the embedding's for positions added to the stream, 1 for positions added to normalised queries and keys.
Positions of 0.02 there left a previous-token head at 0.15 where 1.0 gave one of 0.75. [CLS] starts at the scale of what
is read in. Vectors and pixels are taken to have mean square 1, as images have after normalisation.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

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
        tensors = self._of_layers(part, name)
        if not tensors:
            raise ValueError(missing or f"this model has no {name}.")
        return torch.stack(tensors)

    def _of_layers(self, part: str, name: str) -> list[Tensor]:
        """One tensor a layer, or nothing where the model has none."""
        tensors = [getattr(getattr(block, part), name, None) for block in self.blocks]
        return [tensor for tensor in tensors if tensor is not None]

    def _stack_bias(self, part: str, name: str, shape: tuple[int, ...]) -> Tensor:
        tensors = self._of_layers(part, name)
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


@torch.no_grad()
def initialise(model: Any) -> None:
    """Fill every parameter and random pattern of `model`; on the meta device there is nothing to fill."""
    generator = torch.Generator().manual_seed(model.cfg.seed)
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            return
        _fill(model, name, parameter, generator)
    if model.cfg.fixed_pattern in ("random", "learned"):
        for block in model.blocks:
            block.attn.fixed_pattern.copy_(_random_pattern(model, generator))


def _fill(model: Any, name: str, parameter: nn.Parameter, generator: torch.Generator) -> None:
    cfg = model.cfg
    last = name.rsplit(".", 1)[-1]
    if last == "fixed_pattern":
        return
    if last == "w":
        parameter.fill_(1.0 - cfg.norm_gain_offset)
    elif last.lstrip("_").startswith("b"):
        parameter.zero_()
    else:
        read_in = _read_in_scale(cfg)
        if last == "W_pos":
            at_scale = 1.0 if cfg.positions == "qk" and cfg.norm else read_in
            std = at_scale if cfg.position_init_std is None else cfg.position_init_std
        elif last in ("W_E", "cls", "distillation"):
            std = read_in
        else:
            width = parameter.shape[0] if parameter.ndim == 2 else parameter.shape[1]
            if last == "W_O":
                width = parameter.shape[0] * parameter.shape[1]
            std = width**-0.5 if cfg.init_std is None else cfg.init_std
            if last in ("W_O", "W_out"):
                std /= math.sqrt(2 * cfg.n_layers)
        parameter.copy_(_standard_normal(parameter.shape, generator) * std)


def _read_in_scale(cfg: ModelConfig) -> float:
    """Root mean square of what is read into the stream: rows of W_E, or x W of an x whose mean square is 1."""
    if cfg.read_in == "tokens":
        return cfg.d_model**-0.5 if cfg.init_std is None else cfg.init_std
    width = cfg.d_in if cfg.read_in == "vectors" else cfg.n_channels * (cfg.patch_size or 1) ** 2
    return 1.0 if width is None or cfg.init_std is None else cfg.init_std * math.sqrt(width)


def _standard_normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw whatever torch's default type and device are, so that a seed means the same weights everywhere."""
    return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")


def _random_pattern(model: Any, generator: torch.Generator) -> Tensor:
    """Draw positive rows that sum to 1 over the keys each query may see: a softmax of standard normal scores."""
    cfg = model.cfg
    scores = _standard_normal((cfg.n_heads, cfg.n_ctx, cfg.n_ctx), generator)
    visible = model.visible_keys(cfg.n_ctx, None, torch.device("cpu"))
    if visible is not None:
        scores = scores.masked_fill(~visible[0], float("-inf"))
    return scores.softmax(-1).nan_to_num(0.0)  # a query that its mask leaves without keys has a row of zeros
