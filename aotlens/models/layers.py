"""The surroundings of attention: the baselines' MLP, and the block that adds both to the stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from aotlens.models.attention import make_attention
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
