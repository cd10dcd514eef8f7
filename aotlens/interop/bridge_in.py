"""A native TransformerLens bridge as a model.

The weights decide what comes back:

- Where W_K = W_V and W_Q = c·W_K with one c > 0 throughout (biases alike), the model is MSSA with scores
  scaled by c/√d_head; three equal matrices are c = 1. Where also W_O = η·Uᵀ with one η, its output is tied.
- W_pos = 0 is no positions. Biases that are all zero are no biases. W_U = W_Eᵀ is tied embeddings.
- More or fewer outputs than tokens are classes, at every position.

A bridge that `to_transformer_lens` made remembers the model's configuration (`bridge.cfg.aotlens`), which
settles what weights cannot: MHSA's `attn_scale`, whether biases or positions that are zero exist, and pooling.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from aotlens.data import Tokenizer
from aotlens.interop.bridge_out import TransformerBridge, query_factor
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from aotlens.models.config_checks import ACTIVATIONS
from aotlens.models.count import build_on_meta

_ACTIVATIONS = {**{name: name for name in ACTIVATIONS}, "swish": "silu"}
_LAYERS_BIASES = ("b_Q", "b_K", "b_V", "b_O", "b_in", "b_out")


@torch.no_grad()
def from_transformer_lens(bridge: TransformerBridge) -> AttentionOnlyTransformer:
    """Return the model that computes the bridge's logits (to 1e-5 in float32), on the same device. Weights are
    copied.

    Weights are taken as the bridge has them now: also after `enable_compatibility_mode`, which folds and
    centres them. Hooks on the bridge stay there. A fast tokenizer comes along;
    another gives a warning.

    Raises `ValueError`, naming every reason, for what our family does not contain: bridges around other
    libraries' models, rotary positions, grouped keys, RMS norms, gated MLPs, other activations, soft caps.
    """
    from transformer_lens.model_bridge import TransformerBridge

    if not isinstance(bridge, TransformerBridge):
        raise ValueError(f"from_transformer_lens: expected a TransformerBridge, got a {type(bridge).__name__}.")
    reasons = _cannot_express(bridge)
    if reasons:
        raise ValueError(f"this bridge is outside the family of aotlens models: {'; '.join(reasons)}.")
    weights, norms = _read(bridge)
    cfg, state = _describe(bridge.cfg, weights)
    state |= norms
    model = build_on_meta(cfg)
    expected = model.state_dict()
    for name in expected.keys() - state.keys():  # a norm whose gain and bias have been folded away (LNPre)
        assert ".ln" in f".{name}", name
        state[name] = (torch.ones if name.endswith(".w") else torch.zeros)(cfg.d_model).to(weights["W_E"])
    model.load_state_dict({name: tensor.clone() for name, tensor in state.items()}, strict=True, assign=True)
    model.tokenizer = _tokenizer(bridge)
    return model.train(bridge.training)


def _cannot_express(bridge: TransformerBridge) -> list[str]:
    cfg = bridge.cfg
    if cfg.architecture != "TransformerLensNative":
        return [f"architecture {cfg.architecture!r}, expected one that TransformerBridge.boot_native made"]
    norm, positions = cfg.normalization_type, cfg.positional_embedding_type
    checks = {
        f"positional_embedding_type={positions!r}": positions != "standard",
        f"n_key_value_heads={cfg.n_key_value_heads}": cfg.n_key_value_heads not in (None, cfg.n_heads),
        f"normalization_type={norm!r}": norm is not None and norm.upper() not in ("LN", "LNPRE"),
        "final_rms=True": cfg.final_rms,
        "gated_mlp=True": cfg.gated_mlp and not cfg.attn_only,
        f"act_fn={cfg.act_fn!r}": not cfg.attn_only and str(cfg.act_fn).lower() not in _ACTIVATIONS,
        f"attn_scores_soft_cap={cfg.attn_scores_soft_cap}": cfg.attn_scores_soft_cap > 0,
        f"output_logits_soft_cap={cfg.output_logits_soft_cap}": cfg.output_logits_soft_cap > 0,
    }
    return [reason for reason, holds in checks.items() if holds]


def _read(bridge: TransformerBridge) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the weights in our shapes, stacked over layers, and the norms by our names."""
    cfg, state = bridge.cfg, bridge.state_dict()
    heads = (cfg.n_heads, cfg.d_head)
    weights = {"W_E": state["embed.weight"], "W_pos": state["pos_embed.weight"], "W_U": state["unembed.weight"].T}
    weights["b_U"] = state["unembed.bias"]

    def stack(key: str) -> Tensor:
        return torch.stack([state[f"blocks.{layer}.{key}"] for layer in range(cfg.n_layers)])

    for name in "QKV":
        flat = stack(f"attn.{name.lower()}.weight")  # [layer, head · d_head, d_model]
        weights[f"W_{name}"] = flat.unflatten(1, heads).transpose(-1, -2)
        weights[f"b_{name}"] = stack(f"attn.{name.lower()}.bias").unflatten(1, heads)
    weights["W_O"] = stack("attn.o.weight").transpose(1, 2).unflatten(1, heads)
    weights["b_O"] = stack("attn.o.bias")
    for name in () if cfg.attn_only else ("in", "out"):
        weights[f"W_{name}"] = stack(f"mlp.{name}.weight").transpose(1, 2)
        weights[f"b_{name}"] = stack(f"mlp.{name}.bias")
    norms = {key: tensor for key, tensor in state.items() if ".ln" in f".{key}"}
    return weights, {key.replace(".weight", ".w").replace(".bias", ".b"): tensor for key, tensor in norms.items()}


def _describe(bridge_cfg: Any, weights: dict[str, Tensor]) -> tuple[ModelConfig, dict[str, Tensor]]:
    """The configuration that fits the weights, and the state dict of its model."""
    remembered = getattr(bridge_cfg, "aotlens", None)
    before = None if remembered is None else ModelConfig.from_dict(remembered)
    is_biased = any(bool(weights[name].any()) for name in _LAYERS_BIASES if name in weights)
    has_read_out_bias = bool(weights["b_U"].any())
    n_tokens, n_outputs = len(weights["W_E"]), weights["W_U"].shape[1]
    writes_classes = n_outputs != n_tokens or (before is not None and before.read_out == "classes")
    is_tied = not writes_classes and not has_read_out_bias and torch.equal(weights["W_U"], weights["W_E"].T)
    if before is not None:
        is_biased |= before.bias
        has_read_out_bias |= before.has_read_out_bias and not is_tied
    elif not is_tied:  # one switch for all, as long as nothing says otherwise
        is_biased = has_read_out_bias = is_biased or has_read_out_bias
    has_positions = bool(weights["W_pos"].any()) or (before is not None and before.positions is not None)
    scaled = bridge_cfg.use_attn_scale and bridge_cfg.attn_scale > 0
    fields: dict[str, Any] = {
        "attn_scale": 1 / bridge_cfg.attn_scale if scaled else None,
        "bias": is_biased,
        "read_out_bias": None if is_biased == has_read_out_bias else has_read_out_bias,
        "tied_embeddings": is_tied,
        "positions": "learned" if has_positions else None,
    }
    if writes_classes:
        pooling = None if before is None else before.pooling
        fields |= {"read_out": "classes", "d_out": n_outputs, "pooling": pooling}
    fields |= _attention(bridge_cfg, weights, fields["attn_scale"], before)
    if before is not None:  # how the weights began
        fields |= {name: getattr(before, name) for name in ("seed", "init_std", "position_init_std")}
    cfg = ModelConfig(
        n_layers=bridge_cfg.n_layers,
        d_model=bridge_cfg.d_model,
        n_heads=bridge_cfg.n_heads,
        d_head=bridge_cfg.d_head,
        # Not the bridge's d_vocab and n_ctx: setting its tokenizer changes the first.
        n_ctx=len(weights["W_pos"]),
        d_vocab=n_tokens,
        d_mlp=None if bridge_cfg.attn_only else bridge_cfg.d_mlp,
        act_fn=_ACTIVATIONS.get(str(bridge_cfg.act_fn).lower(), "gelu"),
        norm=None if bridge_cfg.normalization_type is None else "layernorm",
        norm_eps=bridge_cfg.eps,
        causal=bridge_cfg.attention_dir == "causal",
        **fields,
    )
    return cfg, _state(cfg, weights)


def _attention(
    bridge_cfg: Any, stacked: dict[str, Tensor], attn_scale: float | None, before: ModelConfig | None
) -> dict[str, Any]:
    """Determine the operator of the weights, and undo the export's factor in `stacked`."""
    known = query_factor(before) if before is not None else None
    ratio = None
    if torch.equal(stacked["W_K"], stacked["W_V"]) and torch.equal(stacked["b_K"], stacked["b_V"]):
        ratio = _ratio(stacked["W_Q"], stacked["W_K"], known, unit=math.sqrt(bridge_cfg.d_head))
        if ratio is not None and not _is_multiple(stacked["b_Q"], stacked["b_K"], ratio):
            ratio = None
    factor = ratio if ratio is not None else known or 1.0
    fields: dict[str, Any] = {"attn_scale": _scale(attn_scale, factor, bridge_cfg.d_head)}
    if before is not None and factor == known and attn_scale is None:
        fields["attn_scale"] = before.attn_scale
    if ratio is None:
        stacked["W_Q"], stacked["b_Q"] = stacked["W_Q"] / factor, stacked["b_Q"] / factor
        return fields | {"attention": "mhsa"}
    fields["attention"] = "mssa"
    known_step = before.step_size if before is not None and before.tied_output else None
    step_size = _ratio(stacked["W_O"], stacked["W_K"].transpose(-1, -2), known_step)
    if step_size is not None:
        fields |= {"tied_output": True, "step_size": step_size}
    return fields


def _scale(attn_scale: float | None, factor: float, d_head: int) -> float | None:
    """The multiplier of scores once `factor` is taken out of W_Q; None for 1/√d_head."""
    scale = (d_head**-0.5 if attn_scale is None else attn_scale) * factor
    for simple in (d_head**-0.5, float(f"{scale:.6g}")):
        if math.isclose(scale, simple, rel_tol=1e-9):
            return None if simple == d_head**-0.5 else simple
    return scale


def _ratio(tensor: Tensor, reference: Tensor, known: float | None, unit: float = 1.0) -> float | None:
    """The c > 0 with tensor = c · reference up to rounding, or None; `known` first, then multiples of `unit`."""
    if known is not None and _is_multiple(tensor, reference, known):
        return known
    exact, base = tensor.double(), reference.double()
    if not base.any() or not exact.any():
        return 1.0 if not base.any() and not exact.any() else None
    fitted = float((exact * base).sum() / base.square().sum())
    for candidate in (float(f"{fitted:.6g}"), float(f"{fitted / unit:.6g}") * unit, fitted):
        if candidate > 0 and _is_multiple(tensor, reference, candidate):
            return candidate
    return None


def _is_multiple(tensor: Tensor, reference: Tensor, ratio: float) -> bool:
    """Whether tensor = ratio · reference up to the rounding of their type."""
    return torch.allclose(tensor.double(), ratio * reference.double(), rtol=4 * torch.finfo(tensor.dtype).eps, atol=0.0)


def _state(cfg: ModelConfig, stacked: dict[str, Tensor]) -> dict[str, Tensor]:
    state = {"embed.W_E": stacked["W_E"]}
    if cfg.positions is not None:
        state["pos_embed.W_pos"] = stacked["W_pos"]
    if not cfg.tied_embeddings:
        state["unembed.W_U"] = stacked["W_U"]
    if cfg.has_read_out_bias:
        state["unembed.b_U"] = stacked["b_U"]
    attention = {"W_K": "attn.U", "b_K": "attn.b"}
    if cfg.attention == "mhsa":
        attention = {f"{kind}_{name}": f"attn.{kind}_{name}" for kind in "Wb" for name in "QKV"}
    attention |= {"b_O": "attn.b_O"} | ({} if cfg.tied_output else {"W_O": "attn.W_O"})
    mlp = {} if cfg.attn_only else {f"{kind}_{name}": f"mlp.{kind}_{name}" for kind in "Wb" for name in ("in", "out")}
    parts = {ours: stacked[name] for name, ours in {**attention, **mlp}.items() if cfg.bias or name[0] != "b"}
    for layer in range(cfg.n_layers):
        state |= {f"blocks.{layer}.{name}": tensor[layer] for name, tensor in parts.items()}
    return state


def _tokenizer(bridge: TransformerBridge) -> Any:
    if bridge.tokenizer is None:
        return None
    try:
        return Tokenizer.of(bridge.tokenizer)
    except ValueError as error:
        warnings.warn(f"the bridge's tokenizer is left behind: {error}.", stacklevel=3)
        return None
