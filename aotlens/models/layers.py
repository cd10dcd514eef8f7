"""The surroundings of attention: the baselines' MLP, the block that adds both to the stream, and both ends of a model,
what is read into the stream and out of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotlens.models.attention import capped, make_attention
from aotlens.models.config import ModelConfig
from aotlens.models.hook_points import HookPoint
from aotlens.models.norms import Norm
from aotlens.models.positions import PositionTerms

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


class MLP(nn.Module):
    """act(x W_in + b_in) W_out + b_out; gated, (act(x W_gate + b_gate) · (x W_in + b_in)) W_out + b_out.

    Hooks, as TransformerLens has them: hook_pre, before the activation; of a gated one hook_pre_linear, what the gate
    multiplies; hook_post, what W_out reads.
    """

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        assert cfg.d_mlp is not None
        self.activation = _ACTIVATIONS[cfg.act_fn]
        self.b_in: Tensor | None
        self.b_out: Tensor | None
        self.W_in = nn.Parameter(torch.empty(cfg.d_model, cfg.d_mlp))
        self.W_out = nn.Parameter(torch.empty(cfg.d_mlp, cfg.d_model))
        self.register_parameter("b_in", nn.Parameter(torch.empty(cfg.d_mlp)) if cfg.bias else None)
        self.register_parameter("b_out", nn.Parameter(torch.empty(cfg.d_model)) if cfg.bias else None)
        self.W_gate: Tensor | None
        self.b_gate: Tensor | None
        gate = nn.Parameter(torch.empty(cfg.d_model, cfg.d_mlp)) if cfg.gated_mlp else None
        self.register_parameter("W_gate", gate)
        self.register_parameter("b_gate", nn.Parameter(torch.empty(cfg.d_mlp)) if cfg.gated_mlp and cfg.bias else None)
        self.hook_pre, self.hook_post = HookPoint(), HookPoint()
        if cfg.gated_mlp:
            self.hook_pre_linear = HookPoint()

    def forward(self, x: Tensor) -> Tensor:
        read = F.linear(x, self.W_in.T, self.b_in)
        if self.W_gate is None:
            post = self.activation(self.hook_pre(read))
        else:
            gate = self.activation(self.hook_pre(F.linear(x, self.W_gate.T, self.b_gate)))
            post = gate * self.hook_pre_linear(read)
        return F.linear(self.hook_post(post), self.W_out.T, self.b_out)


class Block(nn.Module):
    """Attention and skip connection; for the baselines, MLP and skip connection after or (parallel) beside it. Norms
    stand where `ModelConfig.norm_place` says: `ln1`, `ln2` before attention and MLP, or after the addition;
    `ln1_post`, `ln2_post` on what they write.

    hook_attn_out and hook_mlp_out are what is added to the stream; hook_resid_mid and hook_resid_post are streams that
    the next layer reads, behind a norm that stands after the addition.
    """

    # The property that TransformerLens's logit lens asks for before it reads the stream between layers.
    hook_out_is_single_residual_stream = True

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.parallel, self.is_after = cfg.parallel, cfg.norm_place == "after"
        norm = Norm if cfg.reads_normed or self.is_after else _nothing
        on_output = Norm if cfg.norms_output else _nothing
        self.ln1, self.ln1_post = norm(cfg), on_output(cfg)
        self.attn = make_attention(cfg)
        self.hook_resid_pre, self.hook_attn_out, self.hook_resid_post = HookPoint(), HookPoint(), HookPoint()
        self.mlp: MLP | None = None
        if cfg.d_mlp is not None:
            self.ln2, self.ln2_post = norm(cfg), on_output(cfg)
            self.mlp = MLP(cfg)
            self.hook_mlp_out = HookPoint()
            if not cfg.parallel:
                self.hook_resid_mid = HookPoint()

    def forward(self, residual: Tensor, order: PositionTerms, visible: Tensor | None, causal_only: bool) -> Tensor:
        residual = before = self.hook_resid_pre(residual)
        read = residual if self.is_after else self.ln1(residual)
        residual = residual + self.hook_attn_out(self.ln1_post(self.attn(read, order, visible, causal_only)))
        residual = self.ln1(residual) if self.is_after else residual
        if self.mlp is not None:
            beside = before if self.parallel else self.hook_resid_mid(residual)
            residual = residual if self.parallel else beside
            read = beside if self.is_after else self.ln2(beside)
            residual = residual + self.hook_mlp_out(self.ln2_post(self.mlp(read)))
            residual = self.ln2(residual) if self.is_after else residual
        return self.hook_resid_post(residual)


def _nothing(cfg: ModelConfig) -> nn.Identity:
    return nn.Identity()


class TokenEmbedding(nn.Module):
    """Token ids `[batch, pos]` → rows of W_E `[d_vocab, d_model]`."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        assert cfg.d_vocab is not None
        self.cfg = cfg
        self.W_E = nn.Parameter(torch.empty(cfg.d_vocab, cfg.d_model))

    def check(self, x: Tensor) -> None:
        """Raise `ValueError` for anything but a batch of ids within the vocabulary and the context."""
        if x.ndim != 2 or x.is_floating_point() or x.dtype == torch.bool:
            raise ValueError(f"expected integer token ids [batch, pos], got {list(x.shape)} {x.dtype}.")
        if x.numel() and x.device.type != "meta":
            low, high = x.aminmax()
            if low < 0 or high >= self.W_E.shape[0]:
                raise ValueError(
                    f"token ids run from {int(low)} to {int(high)}, but this vocabulary has ids 0 to "
                    f"{self.W_E.shape[0] - 1}. Was the text encoded with another tokenizer?"
                )

    def forward(self, x: Tensor) -> Tensor:
        return F.embedding(x.long(), self.W_E)


class VectorEmbedding(nn.Module):
    """Vectors `[batch, pos, d_in]` → x W + b, or the vectors themselves where d_in is None."""

    W: Tensor | None  # [width, d_model]
    b: Tensor | None  # [d_model]
    cls: Tensor | None  # [d_model]
    distillation: Tensor | None  # [d_model]

    def __init__(self, cfg: ModelConfig, width: int | None) -> None:
        super().__init__()
        self.width = cfg.d_model if width is None else width
        self.register_parameter("W", None if width is None else nn.Parameter(torch.empty(width, cfg.d_model)))
        has_bias = cfg.bias and width is not None
        self.register_parameter("b", nn.Parameter(torch.empty(cfg.d_model)) if has_bias else None)
        for name, exists in (("cls", cfg.class_token), ("distillation", cfg.distillation_token)):
            self.register_parameter(name, nn.Parameter(torch.empty(cfg.d_model)) if exists else None)

    def check(self, x: Tensor) -> None:
        if x.ndim != 3 or x.shape[-1] != self.width or not x.is_floating_point():
            raise ValueError(f"expected vectors [batch, pos, {self.width}], got {list(x.shape)} {x.dtype}.")

    def forward(self, x: Tensor) -> Tensor:
        if self.W is not None:
            x = F.linear(x, self.W.T, self.b)
        before = [token.expand(x.shape[0], 1, -1) for token in (self.cls, self.distillation) if token is not None]
        return torch.cat([*before, x], dim=1) if before else x


class PatchEmbedding(VectorEmbedding):
    """Images `[batch, channel, height, width]` → one vector a patch, in reading order."""

    def __init__(self, cfg: ModelConfig) -> None:
        assert cfg.image_size is not None and cfg.patch_size is not None
        super().__init__(cfg, cfg.n_channels * cfg.patch_size**2)
        self.image = (cfg.n_channels, cfg.image_size, cfg.image_size)
        self.patch = cfg.patch_size

    def check(self, x: Tensor) -> None:
        if x.ndim != 4 or tuple(x.shape[1:]) != self.image or not x.is_floating_point():
            expected = ", ".join(map(str, self.image))
            raise ValueError(f"expected images [batch, {expected}] as floats, got {list(x.shape)} {x.dtype}.")

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.unfold(x, self.patch, stride=self.patch).transpose(1, 2))


class PositionEmbedding(nn.Module):
    """Positions `[batch or 1, pos]` → rows of W_pos `[n_ctx, d_model]`."""

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.W_pos = nn.Parameter(torch.empty(cfg.n_ctx, cfg.d_model))

    def forward(self, positions: Tensor) -> Tensor:
        return F.embedding(positions, self.W_pos)


class Unembed(nn.Module):
    """The stream → x W_U + b_U, with W_U `[d_model, outputs]`; classes are read where `pooling` says."""

    W_U: Tensor | None  # [d_model, outputs]
    b_U: Tensor | None  # [outputs]

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.cfg = cfg
        width = cfg.d_vocab if cfg.read_out == "tokens" else cfg.d_out
        exists = width is not None and not cfg.tied_embeddings
        self.register_parameter("W_U", nn.Parameter(torch.empty(cfg.d_model, width or 0)) if exists else None)
        has_bias = cfg.has_read_out_bias and exists
        self.register_parameter("b_U", nn.Parameter(torch.empty(width or 0)) if has_bias else None)

    def pool(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return `[batch, d_model]`: the vector of the first or the last unpadded position, or their mean; without
        pooling x."""
        if self.cfg.pooling is None:
            return x
        if self.cfg.pooling == "first":
            return x[:, 0]
        if self.cfg.pooling == "last":
            if attention_mask is None:
                return x[:, -1]
            positions = torch.arange(x.shape[1], device=x.device)
            return x[torch.arange(len(x), device=x.device), (attention_mask * positions).argmax(1)]
        if attention_mask is None:
            return x.mean(1)
        weight = attention_mask.to(x.dtype)[..., None]
        return (x * weight).sum(1) / weight.sum(1)

    def forward(self, x: Tensor, tied: Tensor | None = None) -> Tensor:
        if tied is None and self.W_U is None:
            return x
        weight = self.W_U.T if tied is None else tied  # type: ignore[union-attr]
        return capped(F.linear(x, weight, None if tied is not None else self.b_U), self.cfg.logit_cap)


def make_embedding(cfg: ModelConfig) -> TokenEmbedding | VectorEmbedding:
    """Return the read-in that `cfg` describes."""
    if cfg.read_in == "tokens":
        return TokenEmbedding(cfg)
    return PatchEmbedding(cfg) if cfg.read_in == "patches" else VectorEmbedding(cfg, cfg.d_in)
