"""Signs that a source is not of our family, in its settings and in the names of its tensors.

Tensors of such a model may fit in shape, and compute something else. Settings are taken at their word; names that are
only usual for norms after the layers are asked about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from aotlens.interop.external.material import Material
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


def signs(material: Material, cfg: ModelConfig | None = None) -> list[str]:
    """List what the settings and the tensors' names say that `cfg` does not (None: a model without any of it); norms
    after the layers apart."""
    settings = {name: value for config in material.configs.values() for name, value in _flat(config) if value}
    reasons = []
    rotary = [name for name in settings if name.startswith(("rope_", "rotary"))]
    rotary += [name for name in material.tensors if name.endswith("rotary_emb.inv_freq")]
    if rotary and (cfg is None or cfg.positions != "rotary"):
        reasons.append(f"rotary positions ({rotary[0]})")
    if settings.get("alibi") is True and (cfg is None or cfg.positions != "alibi"):
        reasons.append("ALiBi positions (alibi)")
    if "rms_norm_eps" in settings and (cfg is None or cfg.norm != "rms"):
        reasons.append("RMS norms (rms_norm_eps)")
    heads, keys = settings.get("num_attention_heads"), settings.get("num_key_value_heads")
    if isinstance(keys, int) and isinstance(heads, int) and keys not in (heads, cfg and cfg.n_kv_heads):
        reasons.append(f"grouped keys ({keys} of keys and values for {heads} heads)")
    if settings.get("multi_query") is True and (cfg is None or cfg.n_kv_heads != 1):
        reasons.append("grouped keys (multi_query)")
    gated = any(re.search(r"\.(gate_proj|gate_up_proj)\.", name) for name in material.tensors)
    if gated and (cfg is None or not cfg.gated_mlp):
        reasons.append("gated MLPs (gate_proj)")
    beside = settings.get("use_parallel_residual") is True or settings.get("parallel_attn") is True
    if beside and (cfg is None or not cfg.parallel):
        reasons.append("MLPs beside the attention layers")
    if settings.get("is_encoder_decoder") is True:
        reasons.append("an encoder beside a decoder")
    return reasons


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
    for whose, pattern in _NAMES_AFTER.items():
        for name in material.tensors:
            if re.search(pattern, name) and (whose != "torch.nn.TransformerEncoder" or _is_of_torch(material)):
                return f"{name}, as {whose} names them", False
    return None


def _is_of_torch(material: Material) -> bool:
    return any(name.endswith("self_attn.in_proj_weight") for name in material.tensors)


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
    if reasons:
        raise ValueError(f"{material.path}: outside the family of aotlens models: {'; '.join(reasons)}.")
    if after is not None and not is_checked:
        raise ValueError(
            f"{material.path}: its norms are {after[0]}: these follow the layers unless norm_first=True, and ours "
            "precede them. If they precede them here, give a few of the source's logits, check=(tokens, logits) or "
            '--check FILE.npz, or put config.json with {"norm_first": true} beside the weights.'
        )


def other_family(material: Material) -> ValueError | None:
    """Return the error for a model of Hugging Face's that no reader knows: what it has, and what a bridge can do."""
    kind = material.configs.get("config.json", {}).get("model_type")
    after = norms_after(material)
    reasons = signs(material) + ([f"norms after the layers ({after[0]})"] if after else [])
    if not kind or not reasons:
        return None
    return ValueError(
        f"{material.path}: no reader knows a {kind!r}, which has {'; '.join(reasons)}. As a bridge "
        "(where TransformerLens knows it) it has motifs, atlas, value norms and distillation: from "
        "transformer_lens.model_bridge import TransformerBridge; bridge = "
        f"TransformerBridge.boot_transformers({str(material.folder)!r}); aotlens.heads.motif_scores(bridge)."
    )
