"""A forward pass in plain PyTorch, from a model's weights alone: what the analyses of every kind are compared with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer

#: Queries, keys, values or outputs z `[batch, pos, head, d_head]` of a layer → what replaces them.
Edit = Callable[[Tensor], Tensor]


class Plain(NamedTuple):
    """What a run computes, by layer: `q k v z [batch, pos, head, d_head]`, `pattern [batch, head, query, key]`, what
    each layer adds, streams before each layer and after the last, and logits."""

    q: list[Tensor]
    k: list[Tensor]
    v: list[Tensor]
    z: list[Tensor]
    scores: list[Tensor]
    pattern: list[Tensor]
    streams: list[Tensor]
    logits: Tensor


def normed(x: Tensor, weights: Mapping[str, Tensor], name: str, model: AttentionOnlyTransformer) -> Tensor:
    if name + ".w" not in weights:
        return x
    if model.cfg.norm == "layernorm":
        x = x - x.mean(-1, keepdim=True)
    x = x / (x.pow(2).mean(-1, keepdim=True) + model.cfg.norm_eps).sqrt()
    x = x * (weights[name + ".w"] + model.cfg.norm_gain_offset)
    return x + weights[name + ".b"] if name + ".b" in weights else x


def turned(x: Tensor, base: float, dim: int) -> Tensor:
    """Rotate pair f, coordinates f and f + dim/2, of `x [batch, pos, head, d_head]` by base^(−2f/dim) · position."""
    out = x.clone()
    for f in range(dim // 2):
        angle = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * base ** (-2 * f / dim)
        a, b = x[..., f], x[..., f + dim // 2]
        out[..., f] = a * angle.cos() - b * angle.sin()
        out[..., f + dim // 2] = a * angle.sin() + b * angle.cos()
    return out


def run(model: AttentionOnlyTransformer, ids: Tensor, edits: Mapping[tuple[str, int], Edit] | None = None) -> Plain:
    """Run tokens; `edits["q", 1]` replaces the queries of layer 1, after a clip and before norms and rotation, and
    `edits["stream", 1]` the stream `[batch, pos, d_model]` before it."""
    cfg, weights = model.cfg, dict(model.named_parameters())
    edits, n = edits or {}, ids.shape[1]
    kept: dict[str, list[Tensor]] = {name: [] for name in Plain._fields[:-2]}
    x = weights["embed.W_E"][ids]
    if cfg.positions == "learned":
        x = x + weights["pos_embed.W_pos"][:n]
    streams = []
    for layer in range(cfg.n_layers):
        at = f"blocks.{layer}."
        x = edits["stream", layer](x) if ("stream", layer) in edits else x
        streams.append(x)

        def edited(name: str, value: Tensor, layer: int = layer) -> Tensor:
            value = edits[name, layer](value.clone()) if (name, layer) in edits else value
            kept[name].append(value)
            return value

        read = normed(x, weights, at + "ln1", model) if cfg.norm_place in ("before", "both") else x
        q, k, v = (projected(read, weights, at + "attn.", which, model) for which in "QKV")
        q, k, v = edited("q", q), edited("k", k), edited("v", v)
        if cfg.qk_norm is not None:
            over = (-2, -1) if cfg.qk_norm == "layer" else (-1,)
            gains = [weights[f"{at}attn.{name}_norm.w"] + cfg.norm_gain_offset for name in "qk"]
            gains = [gain if gain.ndim == 1 else gain.repeat_interleave(cfg.n_heads // len(gain), 0) for gain in gains]
            q, k = (
                part / (part.pow(2).mean(over, keepdim=True) + cfg.norm_eps).sqrt() * gain
                for part, gain in zip((q, k), gains, strict=True)
            )
        if cfg.rotary is not None:
            q, k = (turned(part, cfg.rotary.base, cfg.rotary.dim or cfg.d_head) for part in (q, k))
        scores = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(cfg.d_head)
        if cfg.score_cap is not None:
            scores = cfg.score_cap * torch.tanh(scores / cfg.score_cap)
        back = torch.arange(n)[:, None] - torch.arange(n)
        if cfg.positions == "alibi":
            scores = scores - 2.0 ** (-8 * (torch.arange(cfg.n_heads) + 1.0) / cfg.n_heads)[:, None, None] * back
        hidden = back < 0
        if cfg.windows is not None and cfg.windows[layer] is not None:
            hidden = hidden | (back >= cfg.windows[layer])
        scores = scores.masked_fill(hidden, -math.inf)
        kept["scores"].append(scores)
        kept["pattern"].append(scores.softmax(-1))
        z = edited("z", torch.einsum("bhij,bjhd->bihd", kept["pattern"][-1], v))
        W_O = weights[at + "attn.W_O"]
        written = torch.einsum("bihd,hdm->bim", z, W_O) + weights.get(at + "attn.b_O", torch.zeros(()))
        before, x = x, added(x, written, weights, at + "ln1", model)
        if cfg.d_mlp is not None:
            x = added(x, mlp(before if cfg.parallel else x, weights, at, model), weights, at + "ln2", model)
    return Plain(*kept.values(), [*streams, x], read_out(model, x))


def read_out(model: AttentionOnlyTransformer, x: Tensor) -> Tensor:
    """Return the logits of a stream."""
    weights, cap = dict(model.named_parameters()), model.cfg.logit_cap
    logits = normed(x, weights, "ln_final", model) @ weights["unembed.W_U"] + weights.get(
        "unembed.b_U", torch.zeros(())
    )
    return logits if cap is None else cap * torch.tanh(logits / cap)


def projected(
    read: Tensor, weights: Mapping[str, Tensor], at: str, which: str, model: AttentionOnlyTransformer
) -> Tensor:
    """Return queries, keys or values, with those of shared heads repeated."""
    cfg = model.cfg
    if cfg.attention == "mssa":
        return torch.einsum("bpm,hmd->bphd", read, weights[at + "U"])
    name = which if at + f"W_{which}" in weights else None
    W = weights[at + (f"W_{which}" if name else f"_W_{which}")]
    bias = weights.get(at + (f"b_{which}" if name else f"_b_{which}"), torch.zeros(W.shape[0], cfg.d_head))
    if which in "QK" and cfg.positions == "qk":
        read = read + weights["pos_embed.W_pos"][: read.shape[1]]
    part = (torch.einsum("bpm,hmd->bphd", read, W) + bias).repeat_interleave(cfg.n_heads // len(W), 2)
    return part if cfg.clip_qkv is None else part.clamp(-cfg.clip_qkv, cfg.clip_qkv)


def added(
    x: Tensor, written: Tensor, weights: Mapping[str, Tensor], norm: str, model: AttentionOnlyTransformer
) -> Tensor:
    """Return the stream after a layer, by the place of its norms."""
    if model.cfg.norm_place == "after":
        return normed(x + written, weights, norm, model)
    return x + normed(written, weights, norm + "_post", model)


def mlp(x: Tensor, weights: Mapping[str, Tensor], at: str, model: AttentionOnlyTransformer) -> Tensor:
    cfg = model.cfg
    read = normed(x, weights, at + "ln2", model) if cfg.norm_place in ("before", "both") else x
    bias = {name: weights.get(f"{at}mlp.b_{name}", torch.zeros(())) for name in ("in", "gate", "out")}
    inner = read @ weights[at + "mlp.W_in"] + bias["in"]
    if cfg.gated_mlp:
        gate = read @ weights[at + "mlp.W_gate"] + bias["gate"]
        inner = inner * gate / (1 + (-gate).exp())  # SiLU
    else:
        inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))  # GELU
    return inner @ weights[at + "mlp.W_out"] + bias["out"]
