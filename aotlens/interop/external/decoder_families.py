"""The families of decoders that are read: what each calls its tensors, and what its settings mean in ours.

Settings are those of `config.json`, with the defaults of the family where it leaves them out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from aotlens.interop.external.decoder_settings import Settings

Names = Mapping[str, str | None]


def both(theirs: str, ours: str) -> dict[str, str | None]:
    """Map the weight, `[out, in]`, and the bias of a `Linear` to ours."""
    part, _, name = ours.rpartition(".")
    mark, stem = ("_", name[1:]) if name.startswith("_") else ("", name)
    return {f"{theirs}.weight": f"{part}.{mark}W_{stem}.T", f"{theirs}.bias": f"{part}.{mark}b_{stem}"}


def _norm(theirs: str, ours: str) -> dict[str, str | None]:
    return {f"{theirs}.weight": f"{ours}.w", f"{theirs}.bias": f"{ours}.b"}


def _heads(theirs: str, out: str) -> dict[str, str | None]:
    each = {name: f"attn.{name}" for name in "QKV"}
    names = [both(f"{theirs}.{name.lower()}_proj", ours) for name, ours in each.items()]
    return {**names[0], **names[1], **names[2], **both(f"{theirs}.{out}", "attn.O")}


_LLAMA = {
    **_heads("self_attn", "o_proj"),
    **_norm("input_layernorm", "ln1"),
    **_norm("post_attention_layernorm", "ln2"),
    **both("mlp.gate_proj", "mlp.gate"),
    **both("mlp.up_proj", "mlp.in"),
    **both("mlp.down_proj", "mlp.out"),
    "self_attn.rotary_emb.inv_freq": None,
}
_QK_NORMS = {"self_attn.q_norm.weight": "attn.q_norm.w", "self_attn.k_norm.weight": "attn.k_norm.w"}
_OUTPUT_NORMS = {
    **_norm("post_attention_layernorm", "ln1_post"),
    **_norm("pre_feedforward_layernorm", "ln2"),
    **_norm("post_feedforward_layernorm", "ln2_post"),
}
_NEOX = {
    **both("attention.dense", "attn.O"),
    **_norm("input_layernorm", "ln1"),
    **_norm("post_attention_layernorm", "ln2"),
    **both("mlp.dense_h_to_4h", "mlp.in"),
    **both("mlp.dense_4h_to_h", "mlp.out"),
    **dict.fromkeys(("attention.bias", "attention.masked_bias", "attention.rotary_emb.inv_freq")),
}


@dataclass(frozen=True, kw_only=True)
class Family:
    """The names of one family's tensors and settings."""

    layers: str
    """The prefix before a layer's number."""
    names: Names
    """A layer's tensors."""
    ends: Names
    """The other tensors, but the read-out's."""
    fields: Callable[[Settings], dict[str, Any]]
    """Fields of `ModelConfig` besides the sizes."""
    read_out: str = "lm_head"
    fused: str = ""
    """A layer's tensor of queries, keys and values together: of each group of heads in turn, the queries of its heads,
    its key and its value."""
    side_by_side: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """A layer's tensors that are several, one under another: queries, keys and values, or the halves of a gated MLP."""
    alike: Names = field(default_factory=dict)
    """Tensors of a layer that are used twice, where the file has no second: its name, by the first's."""
    embedding: Callable[[Mapping[str, Tensor], Tensor, Settings], Tensor] | None = None
    """The transformation of the embedding before the first layer reads it."""


def _llama(s: Settings) -> dict[str, Any]:
    bias = bool(s.get("attention_bias") or s.get("mlp_bias"))
    return {
        **s.rotary(), "norm": "rms", "norm_eps": s.get("rms_norm_eps", default=1e-6), "gated_mlp": True,
        "act_fn": s.act_fn("hidden_act", default="silu"), "bias": bias, "read_out_bias": False,
        "n_kv_heads": s.get("num_key_value_heads"), "n_ctx": s.n_ctx("max_position_embeddings"),
    }  # fmt: skip


def _mistral(s: Settings) -> dict[str, Any]:
    return {**_llama(s), **s.windows(s.values.get("sliding_window"))}


def _phi3(s: Settings) -> dict[str, Any]:
    return {**_llama(s), **s.rotary(1.0), **s.windows(s.values.get("sliding_window"))}


def _qwen2(s: Settings) -> dict[str, Any]:
    window = s.get("sliding_window") if s.get("use_sliding_window", default=False) else None
    most = s.get("max_window_layers", default=28)
    return {**_llama(s), "qkv_bias": True, **s.windows(window, [layer >= most for layer in range(s.n_layers)])}


def _qwen3(s: Settings) -> dict[str, Any]:
    return {**_qwen2(s), "qkv_bias": None, "qk_norm": "head"}


def _gemma2(s: Settings) -> dict[str, Any]:
    return {
        **_gemma_normed(s, every=2), "score_cap": s.values.get("attn_logit_softcapping", 50.0),
        "logit_cap": s.values.get("final_logit_softcapping", 30.0),
    }  # fmt: skip


def _gemma3(s: Settings) -> dict[str, Any]:
    s.refuse(attn_logit_softcapping=False)  # a setting of theirs that their code leaves alone
    every = s.positive("_sliding_window_pattern", "sliding_window_pattern", default=6)
    return {**_gemma_normed(s, every), "qk_norm": "head", "logit_cap": s.get("final_logit_softcapping")}


def _gemma_normed(s: Settings, every: float | int) -> dict[str, Any]:
    """Return the fields of norms on both sides, and of a window in all but every so many layers."""
    s.refuse(use_bidirectional_attention=False)
    layers = [(layer + 1) % every != 0 for layer in range(s.n_layers)]
    scale = s.positive("query_pre_attn_scalar", default=256) ** -0.5
    windows = s.windows(s.get("sliding_window", default=4096), layers, kept=True)
    return _local({**_gemma(s, "hidden_activation"), "norm_place": "both", "attn_scale": scale, **windows})


def _gemma(s: Settings, act_fn: str = "hidden_act") -> dict[str, Any]:
    return {**_llama(s), "norm_gain_offset": 1.0, "act_fn": s.act_fn(act_fn, default="gelu_pytorch_tanh")}


def _olmo(s: Settings) -> dict[str, Any]:
    return {**_llama(s), "norm": "layernorm", "norm_eps": 1e-5, "clip_qkv": s.get("clip_qkv")}


def _olmo2(s: Settings) -> dict[str, Any]:
    return {**_llama(s), "norm_place": "output", "qk_norm": "layer", **s.windows(s.get("sliding_window"))}


def _olmo3(s: Settings) -> dict[str, Any]:
    """Of older files, `rope_theta` and `rope_scaling` are those of layers without a window."""
    layers = [(layer + 1) % 4 != 0 for layer in range(s.n_layers)]
    local = {"rotary_local": {"base": 500_000.0, "dim": s.d_head}}
    return _local({**local, **_olmo2(s), **s.windows(s.get("sliding_window"), layers, kept=True)})


def _local(fields: dict[str, Any]) -> dict[str, Any]:
    """Drop what is of layers with a window where there is none, or where they rotate as the others do."""
    same = fields.get("rotary_local") in (None, fields["rotary"])
    if same or not fields.get("windows"):
        fields["rotary_local"] = None
    if same and fields.get("windows") and all(each in (None, fields["n_ctx"]) for each in fields["windows"]):
        fields["windows"] = None
    return fields


def _stablelm(s: Settings) -> dict[str, Any]:
    s.refuse(qk_layernorm=False)
    eps = s.get("layer_norm_eps", default=1e-5)
    qkv = bool(s.get("use_qkv_bias", default=False))
    parallel = bool(s.get("use_parallel_residual", default=False))
    return {
        **_llama(s), **s.rotary(0.25), "norm": "layernorm", "norm_eps": eps, "qkv_bias": qkv, "parallel": parallel,
    }  # fmt: skip


def _phi(s: Settings) -> dict[str, Any]:
    s.refuse(qk_layernorm=False)
    return {
        **s.rotary(0.5), "norm_eps": s.get("layer_norm_eps", default=1e-5), "parallel": True, "bias": True,
        "act_fn": s.act_fn("hidden_act", default="gelu_new"), "n_kv_heads": s.get("num_key_value_heads"),
        "n_ctx": s.n_ctx("max_position_embeddings"),
    }  # fmt: skip


def _falcon(s: Settings) -> dict[str, Any]:
    if s.get("alibi"):
        s.problems.append("alibi=True, whose biases its own code rounds to bfloat16")
    new, shared = s.get("new_decoder_architecture", default=False), s.get("multi_query", default=True)
    return {
        **s.rotary(), "norm_eps": s.get("layer_norm_epsilon", default=1e-5), "bias": bool(s.get("bias", default=False)),
        "read_out_bias": False, "parallel": bool(new or s.get("parallel_attn", default=True)),
        "n_kv_heads": s.get("num_kv_heads", default=s.n_heads) if new else 1 if shared else None,
        "act_fn": s.act_fn("activation", default="gelu"), "n_ctx": s.n_ctx("max_position_embeddings"),
    }  # fmt: skip


def _neox(s: Settings) -> dict[str, Any]:
    return {
        **s.rotary(0.25), "norm_eps": s.get("layer_norm_eps", default=1e-5), "bias": True, "read_out_bias": False,
        "qkv_bias": bool(s.get("attention_bias", default=True)), "act_fn": s.act_fn("hidden_act", default="gelu"),
        "parallel": bool(s.get("use_parallel_residual", default=True)), "n_ctx": s.n_ctx("max_position_embeddings"),
    }  # fmt: skip


def _gptj(s: Settings) -> dict[str, Any]:
    rotary = {"base": 10_000.0, "dim": s.get("rotary_dim", default=64), "pairs": "interleaved"}
    return {
        "positions": "rotary", "rotary": rotary, "parallel": True, "bias": True, "qkv_bias": False,
        "norm_eps": s.get("layer_norm_epsilon", default=1e-5), "n_ctx": s.n_ctx("n_positions"),
        "act_fn": s.act_fn("activation_function", default="gelu_new"),
    }  # fmt: skip


def _gpt_neo(s: Settings) -> dict[str, Any]:
    types = s.get("attention_types", default=[[["global", "local"], 12]])
    kinds = (kind for kinds, times in types for _ in range(times) for kind in kinds)
    layers = [kind == "local" for kind in islice(kinds, s.n_layers)]
    return {
        **s.windows(s.get("window_size", default=256), layers),
        "attn_scale": 1.0, "bias": True, "qkv_bias": False, "read_out_bias": False, "positions": "learned",
        "norm_eps": s.get("layer_norm_epsilon", default=1e-5), "act_fn": s.act_fn(
            "activation_function", default="gelu_new"), "n_ctx": s.n_ctx("max_position_embeddings"),
    }  # fmt: skip


def _opt(s: Settings) -> dict[str, Any]:
    s.refuse(do_layer_norm_before=True, word_embed_proj_dim=s.d_model, _remove_final_layer_norm=False, enable_bias=True)
    s.refuse(layer_norm_elementwise_affine=True)
    return {
        "bias": True, "read_out_bias": False, "positions": "learned", "n_ctx": s.n_ctx("max_position_embeddings"),
        "act_fn": s.act_fn("activation_function", default="relu"),
    }  # fmt: skip


def _bloom(s: Settings) -> dict[str, Any]:
    s.refuse(apply_residual_connection_post_layernorm=False)
    return {
        "positions": "alibi", "bias": True, "read_out_bias": False, "act_fn": "gelu_new",
        "norm_eps": s.get("layer_norm_epsilon", default=1e-5), "n_ctx": s.n_ctx("seq_length"),
    }  # fmt: skip


def _normed(tensors: Mapping[str, Tensor], embedding: Tensor, s: Settings) -> Tensor:
    """BLOOM's norm of the embedding is of single tokens, as they come in."""
    before = "" if "word_embeddings_layernorm.weight" in tensors else "transformer."
    gain, bias = (tensors[f"{before}word_embeddings_layernorm.{name}"].float() for name in ("weight", "bias"))
    eps = s.get("layer_norm_epsilon", default=1e-5)
    return torch.nn.functional.layer_norm(embedding.float(), gain.shape, gain, bias, eps)


_OF_LLAMA = Family(
    layers="model.layers.", names=_LLAMA, fields=_llama,
    ends={"model.embed_tokens.weight": "embed.W_E", **_norm("model.norm", "ln_final")},
)  # fmt: skip


def _like_llama(**changes: Any) -> Family:
    return Family(**{**{name: getattr(_OF_LLAMA, name) for name in ("layers", "names", "ends", "fields")}, **changes})


def _scaled(tensors: Mapping[str, Tensor], embedding: Tensor, s: Settings) -> Tensor:
    """Gemma's embedding, as long as √d_model of its rows."""
    return embedding.float() * math.sqrt(s.d_model)


#: The families by `model_type`. A family that is one of these but for its settings is a line here.
FAMILIES: dict[str, Family] = {
    "llama": _OF_LLAMA,
    "mistral": _like_llama(fields=_mistral),
    "cwm": _like_llama(fields=_mistral),
    "qwen2": _like_llama(fields=_qwen2),
    "qwen3": _like_llama(fields=_qwen3, names={**_LLAMA, **_QK_NORMS}),
    "gemma": _like_llama(fields=_gemma, embedding=_scaled),
    "gemma2": _like_llama(fields=_gemma2, embedding=_scaled, names={**_LLAMA, **_OUTPUT_NORMS}),
    "gemma3_text": _like_llama(
        fields=_gemma3, embedding=_scaled, names={**_LLAMA, **_OUTPUT_NORMS, **_QK_NORMS}
    ),
    "olmo": _like_llama(fields=_olmo),
    "olmo2": _like_llama(fields=_olmo2, names={**_LLAMA, **_OUTPUT_NORMS, **_QK_NORMS}),
    "olmo3": _like_llama(fields=_olmo3, names={**_LLAMA, **_OUTPUT_NORMS, **_QK_NORMS}),
    "stablelm": _like_llama(fields=_stablelm, alike={"input_layernorm.": "post_attention_layernorm."}),
    "phi3": _like_llama(
        fields=_phi3, side_by_side={
            "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
        },
    ),
    "falcon": Family(
        layers="transformer.h.", fields=_falcon, fused="self_attention.query_key_value",
        alike={"input_layernorm.": "post_attention_layernorm."},
        names={
            **both("self_attention.dense", "attn.O"), **_norm("input_layernorm", "ln1"), **_norm("ln_attn", "ln1"),
            **_norm("post_attention_layernorm", "ln2"), **_norm("ln_mlp", "ln2"),
            **both("mlp.dense_h_to_4h", "mlp.in"), **both("mlp.dense_4h_to_h", "mlp.out"),
        },
        ends={"transformer.word_embeddings.weight": "embed.W_E", **_norm("transformer.ln_f", "ln_final")},
    ),
    "phi": _like_llama(
        fields=_phi, alike={"input_layernorm.": "post_attention_layernorm."},
        names={
            **_LLAMA, **both("self_attn.dense", "attn.O"), **both("mlp.fc1", "mlp.in"),
            **both("mlp.fc2", "mlp.out"),
        },
        ends={"model.embed_tokens.weight": "embed.W_E", **_norm("model.final_layernorm", "ln_final")},
    ),
    "gpt_neox": Family(
        layers="gpt_neox.layers.", names=_NEOX, fields=_neox, read_out="embed_out", fused="attention.query_key_value",
        ends={"gpt_neox.embed_in.weight": "embed.W_E", **_norm("gpt_neox.final_layer_norm", "ln_final")},
    ),
    "gptj": Family(
        layers="transformer.h.", fields=_gptj, alike={"ln_1.": "ln_2."},
        names={
            **_heads("attn", "out_proj"), **_norm("ln_1", "ln1"), **_norm("ln_2", "ln2"),
            **both("mlp.fc_in", "mlp.in"), **both("mlp.fc_out", "mlp.out"),
            **dict.fromkeys(("attn.bias", "attn.masked_bias", "attn.embed_positions")),
        },
        ends={"transformer.wte.weight": "embed.W_E", **_norm("transformer.ln_f", "ln_final")},
    ),
    "gpt_neo": Family(
        layers="transformer.h.", fields=_gpt_neo,
        names={
            **_heads("attn.attention", "out_proj"), **_norm("ln_1", "ln1"), **_norm("ln_2", "ln2"),
            **both("mlp.c_fc", "mlp.in"), **both("mlp.c_proj", "mlp.out"),
            **dict.fromkeys(("attn.attention.bias", "attn.attention.masked_bias")),
        },
        ends={
            "transformer.wte.weight": "embed.W_E", "transformer.wpe.weight": "pos_embed.W_pos[:{n_ctx}]",
            **_norm("transformer.ln_f", "ln_final"),
        },
    ),
    "opt": Family(
        layers="model.decoder.layers.", fields=_opt,
        names={
            **_heads("self_attn", "out_proj"), **_norm("self_attn_layer_norm", "ln1"),
            **_norm("final_layer_norm", "ln2"), **both("fc1", "mlp.in"), **both("fc2", "mlp.out"),
        },
        ends={
            "model.decoder.embed_tokens.weight": "embed.W_E",
            "model.decoder.embed_positions.weight": "pos_embed.W_pos[2:]",
            **_norm("model.decoder.final_layer_norm", "ln_final"),
        },
    ),
    "bloom": Family(
        layers="transformer.h.", fields=_bloom, fused="self_attention.query_key_value", embedding=_normed,
        names={
            **both("self_attention.dense", "attn.O"), **_norm("input_layernorm", "ln1"),
            **_norm("post_attention_layernorm", "ln2"), **both("mlp.dense_h_to_4h", "mlp.in"),
            **both("mlp.dense_4h_to_h", "mlp.out"),
        },
        ends={
            "transformer.word_embeddings.weight": "embed.W_E", **_norm("transformer.ln_f", "ln_final"),
            **dict.fromkeys(_norm("transformer.word_embeddings_layernorm", "")),
        },
    ),
}  # fmt: skip
