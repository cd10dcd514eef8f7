"""What surrounds attention: the norm, the baselines' MLP, and the block that adds both to the stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotlens.models.attention import make_attention
from aotlens.models.config import ModelConfig
from aotlens.models.hooks import HookPoint

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


class LayerNorm(nn.Module):
    """(x − mean) / scale · w + b, with scale = √(variance + ε) per position.

    Hooks: hook_scale `[batch, pos, 1]`; hook_normalized `[batch, pos, d_model]`, before gain and bias, as
    TransformerLens's bridge has it.
    """

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        self.eps = cfg.norm_eps
        self.w = nn.Parameter(torch.ones(cfg.d_model))
        self.b = nn.Parameter(torch.zeros(cfg.d_model))
        self.hook_scale, self.hook_normalized = HookPoint(), HookPoint()

    def forward(self, x: Tensor) -> Tensor:
        if not (self.hook_scale.has_hooks() or self.hook_normalized.has_hooks()):
            return F.layer_norm(x, self.w.shape, self.w, self.b, self.eps)
        # bf16 statistics lose digits that F.layer_norm keeps: compute them in float32 at least.
        wide = x if x.dtype == torch.float64 else x.float()
        centred = wide - wide.mean(-1, keepdim=True)
        scale = self.hook_scale((centred.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        return self.hook_normalized((centred / scale).to(x.dtype)) * self.w + self.b


class MLP(nn.Module):
    """act(x W_in + b_in) W_out + b_out, for the GPT-2 and ViT baselines. Hooks: hook_pre, hook_post."""

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
        self.hook_pre, self.hook_post = HookPoint(), HookPoint()

    def forward(self, x: Tensor) -> Tensor:
        pre = self.hook_pre(F.linear(x, self.W_in.T, self.b_in))
        return F.linear(self.hook_post(self.activation(pre)), self.W_out.T, self.b_out)


class Block(nn.Module):
    """Norm, attention, skip connection; for the baselines, norm, MLP, skip connection after it."""

    # What TransformerLens's logit lens asks before it reads the stream between layers.
    hook_out_is_single_residual_stream = True

    def __init__(self, cfg: ModelConfig) -> None:
        super().__init__()
        norm = LayerNorm if cfg.norm else lambda _: nn.Identity()
        self.ln1 = norm(cfg)
        self.attn = make_attention(cfg)
        self.hook_resid_pre, self.hook_attn_out, self.hook_resid_post = HookPoint(), HookPoint(), HookPoint()
        self.mlp: MLP | None = None
        if cfg.d_mlp is not None:
            self.ln2 = norm(cfg)
            self.mlp = MLP(cfg)
            self.hook_resid_mid, self.hook_mlp_out = HookPoint(), HookPoint()

    def forward(
        self, residual: Tensor, qk_positions: Tensor | None, visible: Tensor | None, causal_only: bool
    ) -> Tensor:
        residual = self.hook_resid_pre(residual)
        x = self.ln1(residual)
        x_qk = x if qk_positions is None else x + qk_positions
        residual = residual + self.hook_attn_out(self.attn(x, x_qk, visible, causal_only))
        if self.mlp is not None:
            residual = self.hook_resid_mid(residual)
            residual = residual + self.hook_mlp_out(self.mlp(self.ln2(residual)))
        return self.hook_resid_post(residual)
