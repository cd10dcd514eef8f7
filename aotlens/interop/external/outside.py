"""Signs that a source is not of our family, in its settings and in the names of its tensors.

Tensors of such a model may fit in shape, and compute something else. Settings are taken at their word; names that are
only usual for norms after the layers are asked about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from aotlens.interop.external.material import Material, read_json
from aotlens.interop.external.plans import bridge, refuse
from aotlens.models import ModelConfig

#: Settings of whether norms precede the layers, and of whether they follow them.
_BEFORE = (
    "norm_first", "layer_norm_first", "do_layer_norm_before", "normalize_before", "encoder_normalize_before",
    "decoder_normalize_before", "pre_norm", "prenorm", "pre_layer_norm",
)  # fmt: skip
_AFTER = ("post_norm", "postnorm", "post_layer_norm", "apply_residual_connection_post_layernorm")
#: Names of norms after the layers, by whose they are.
_NAMES_AFTER = {
    "BERT": r"attention\.output\.LayerNorm\.",
    "DistilBERT": r"\.sa_layer_norm\.",
    "BART": r"(^|\.)layernorm_embedding\.",
    "torch.nn.TransformerEncoder": r"layers\.\d+\.norm1\.",
}

#: Layers that neither readers nor bridges know, by their tensors' names; and the names of attention.
_STRANGE = {
    r"\.(A_log|time_decay)$": "no layers of attention but recurrent ones",
    r"\.rel_attn\.": "attention in two streams, to relative positions",
}
_GATED = re.compile(r"\.(gate_proj|gate_up_proj)\.")
_ATTENTION = re.compile(r"(?<!rel_)(attn|attention)\.")
_QUANTISED = (".qweight", ".SCB", ".absmax", ".weight_scale", ".weight_scale_inv", "_packed")
_HEAD = re.compile(r"(^|\.)(score|qa_outputs|classification_head|v_head|classifier)\.([^.]+\.)*weight")


def signs(material: Material, cfg: ModelConfig | None = None) -> list[str]:
    """List what the settings and the tensors' names say that `cfg` does not (None: a model without any of it); norms
    after the layers apart."""
    settings = {name: value for config in material.configs.values() for name, value in _flat(config) if value}
    rotary = [name for name in settings if name.startswith(("rope_", "rotary"))]
    rotary += [name for name in material.tensors if name.endswith("rotary_emb.inv_freq")]
    heads, keys = settings.get("num_attention_heads"), settings.get("num_key_value_heads")
    is_grouped = isinstance(keys, int) and isinstance(heads, int) and keys not in (heads, cfg and cfg.n_kv_heads)
    beside = settings.get("use_parallel_residual") is True or settings.get("parallel_attn") is True

    def lacks(field: str, value: Any) -> bool:
        return cfg is None or getattr(cfg, field) != value

    reasons = {
        f"rotary positions ({''.join(rotary[:1])})": rotary and lacks("positions", "rotary"),
        "ALiBi positions (alibi)": settings.get("alibi") is True and lacks("positions", "alibi"),
        "RMS norms (rms_norm_eps)": "rms_norm_eps" in settings and lacks("norm", "rms"),
        f"grouped keys ({keys} of keys and values for {heads} heads)": is_grouped,
        "grouped keys (multi_query)": settings.get("multi_query") is True and lacks("n_kv_heads", 1),
        "gated MLPs (gate_proj)": any(map(_GATED.search, material.tensors)) and lacks("gated_mlp", True),
        "MLPs beside the attention layers": beside and lacks("parallel", True),
        "an encoder beside a decoder": settings.get("is_encoder_decoder") is True,
    }  # fmt: skip
    return [reason for reason, holds in reasons.items() if holds]


def norms_after(material: Material) -> tuple[str, bool] | None:
    """Find the sign that norms follow the layers, and whether it is a setting; None where there is none.

    Names tell nothing where a setting says that norms precede the layers.
    """
    settings = [(name, value) for config in material.configs.values() for name, value in _flat(config)]
    for name, value in settings:
        if (name in _BEFORE and value is False) or (name in _AFTER and value is True):
            return f"{name}={value}", True
    if any(name in _BEFORE and value is True for name, value in settings):
        return None
    is_of_torch = any(name.endswith("self_attn.in_proj_weight") for name in material.tensors)
    for whose, pattern in _NAMES_AFTER.items():
        sign = next((name for name in material.tensors if re.search(pattern, name)), None)
        if sign is not None and (whose != "torch.nn.TransformerEncoder" or is_of_torch):
            return f"{sign}, as {whose} names them", False
    return None


def _flat(config: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield settings by name, those within others included."""
    for name, value in config.items():
        yield name, value
        if isinstance(value, dict) and depth < 3:
            yield from _flat(value, depth + 1)


def require_family(material: Material, cfg: ModelConfig, is_checked: bool) -> None:
    """Raise `ValueError` for signs of another model than `cfg` describes, whatever the tensors' shapes are.

    Names of norms after the layers are refused unless the source's logits are there to decide (`is_checked`).
    """
    reasons = signs(material, cfg)
    after = norms_after(material) if cfg.norm is not None and cfg.norm_place != "after" else None
    if after is not None and after[1]:
        reasons.append(f"norms after the layers ({after[0]})")
    refuse(material, reasons)
    if after is not None and not is_checked:
        raise ValueError(
            f"{material.path}: its norms are {after[0]}: these follow the layers unless norm_first=True, and ours "
            "precede them. If they precede them here, give a few of the source's logits, check=(tokens, logits) or "
            '--check FILE.npz, or put config.json with {"norm_first": true} beside the weights.'
        )


def require_weights(material: Material) -> None:
    """Raise `ValueError`, with what to do, for quantised weights, and for those of an adapter."""
    where = f"{material.path}: expected the weights of a model, found"
    settings = material.configs.get("config.json", {}).get("quantization_config")
    quantised = [name for name in material.tensors if name.endswith(_QUANTISED)]
    if settings or quantised:
        method = settings.get("quant_method", "?") if isinstance(settings, dict) else settings
        sign = f"quantization_config, {method!r:.40}" if settings else quantised[0]
        raise ValueError(
            f"{where} quantised ones ({sign}). Take those that were quantised, or load these with transformers, "
            "call model.dequantize() where it can, and save_pretrained."
        )
    adapted = next((name for name in material.tensors if ".lora_" in name), "")
    if adapted or material.path.name.startswith("adapter_model"):
        path = material.folder / "adapter_config.json"
        base = read_json(path).get("base_model_name_or_path") if path.is_file() else None
        raise ValueError(
            f"{where} an adapter, as LoRA's ({adapted or material.path.name}, of {base!r:.200}). Merge it into its "
            "model: load it with peft's AutoPeftModelForCausalLM, call merge_and_unload(), then save_pretrained."
        )


def require_read_out(material: Material) -> None:
    """Raise `ValueError`, with what to do, for a head of classes or of values in place of logits of tokens."""
    head = next((name for name in material.tensors if _HEAD.search(name)), None)
    if head is not None and not any("patch_embeddings" in name for name in material.tensors):
        raise ValueError(
            f"{material.path}: expected a read-out to tokens, found a classification head ({head}), which reads one "
            f"position. Describe it in our words, config=ModelConfig(…, read_out='classes', d_out="
            f"{len(material.tensors[head])}, pooling='last') with key_map={{…, {head!r}: 'unembed.W_U.T'}}."
        )


def require_attention(material: Material) -> None:
    """Raise `ValueError`, with what to do, for a model of Hugging Face's without heads that could be shown."""
    for pattern, layers in _STRANGE.items():
        name = next((name for name in material.tensors if re.search(pattern, name)), None)
        if name is not None and not any(_ATTENTION.search(tensor) for tensor in material.tensors):
            raise ValueError(
                f"{material.path}: no reader knows a {material.model_type!r}, and no bridge shows its heads: it has "
                f"{layers} ({name}). transformers runs it; give config=ModelConfig(…) and key_map= if its layers are "
                "those of our family."
            )


def other_family(material: Material) -> ValueError | None:
    """Return the error for a model of Hugging Face's that no reader knows: what it has, and what a bridge can do."""
    if not material.model_type:
        return None
    after = norms_after(material)
    reasons = signs(material) + ([f"norms after the layers ({after[0]})"] if after else [])
    what = "; ".join(reasons or [*material.tensors][:6])
    return ValueError(
        f"{material.path}: no reader knows a {material.model_type!r}, which has {what}. {bridge(material)}"
    )
