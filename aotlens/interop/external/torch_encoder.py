"""`torch.nn.TransformerEncoder`: from vectors to vectors, without positions, with norms before the layers or after.

In memory the module tells its options; a state dict tells sizes alone, and `config=` the rest in PyTorch's words.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import nn

from aotlens.interop.external.decoder_families import both
from aotlens.interop.external.material import Material
from aotlens.interop.external.plan import ACTIVATIONS, Plan, asked, build_config, n_layers, refuse, require_sizes
from aotlens.interop.external.settings import Stated

_NAMES = ("layers.0.self_attn.in_proj_weight", "layers.0.norm1.weight", "layers.0.linear1.weight")
_LAYER: dict[str, str | None] = {
    "self_attn.in_proj_weight": "attn.W_QKV.T", "self_attn.in_proj_bias": "attn.b_QKV",
    **both("self_attn.out_proj", "attn.O"), **both("linear1", "mlp.in"), **both("linear2", "mlp.out"),
    **{f"norm{i}.{theirs}": f"ln{i}.{ours}" for i in (1, 2) for theirs, ours in (("weight", "w"), ("bias", "b"))},
}  # fmt: skip
#: A context where nothing limits it.
_N_CTX = 2048


def options(module: nn.Module) -> dict[str, Any]:
    """Return the options of an encoder in memory, as `TransformerEncoderLayer` takes them; none of another module."""
    if not isinstance(module, nn.TransformerEncoder):
        return {}
    layers = list(module.layers)
    each = [_of_layer(layer) if isinstance(layer, nn.TransformerEncoderLayer) else {} for layer in layers]
    if not layers or any(other != each[0] for other in each):
        raise ValueError("<TransformerEncoder>: expected layers of nn.TransformerEncoderLayer with the same options.")
    norm = module.norm
    if norm is not None and (not isinstance(norm, nn.LayerNorm) or norm.eps != each[0]["layer_norm_eps"]):
        raise ValueError(f"<TransformerEncoder>: expected a LayerNorm with the layers' eps at its end, got {norm}.")
    return each[0]


def _of_layer(layer: nn.TransformerEncoderLayer) -> dict[str, Any]:
    functions = {F.relu: "relu", F.gelu: "gelu", F.silu: "silu"}
    act: Any = layer.activation
    if isinstance(act, nn.GELU):
        name = "gelu_new" if act.approximate == "tanh" else "gelu"
    else:
        name = functions.get(act) or {nn.ReLU: "relu", nn.SiLU: "silu"}.get(type(act), str(act))
    return {
        "nhead": layer.self_attn.num_heads, "norm_first": layer.norm_first, "activation": name,
        "layer_norm_eps": layer.norm1.eps,
    }  # fmt: skip


def matches(material: Material) -> Material | None:
    """Return the tensors by the names of an encoder; None if they have others, or there are more of them."""
    encoder = material.under(*_NAMES)
    alone = encoder is not None and all(name.startswith(("layers.", "norm.")) for name in encoder.tensors)
    return encoder if alone else None


def plan(material: Material, config: Stated, is_described: bool) -> Plan:
    """Plan the model from the names and shapes, and `config` in the words of `nn.TransformerEncoderLayer`. Raises
    `ValueError` for what neither tells, and for an activation that ours has not."""
    path = material.path
    require_sizes(path, config, ("nhead", "max_len"))
    meanings = {"nhead": "heads of each layer", "norm_first": "True or False", "activation": "'relu' or 'gelu'"}
    unsaid = {name: meaning for name, meaning in meanings.items() if config.get(name) is None}
    if unsaid:
        raise asked(path, unsaid)
    d_model = material.shape(_NAMES[1], 1)[0]
    n_heads, act_fn = config["nhead"], str(config["activation"])
    problems = [] if act_fn in ACTIVATIONS else [f"activation={act_fn!r}"]
    problems += [] if d_model % n_heads == 0 else [f"nhead={n_heads} for d_model={d_model}"]
    problems += [] if isinstance(config["norm_first"], bool) else [f"norm_first={config['norm_first']!r}"]
    refuse(material, problems)
    cfg = build_config(
        path, n_layers=n_layers(material, "layers."), d_model=d_model, n_heads=n_heads,
        d_head=d_model // n_heads, n_ctx=config.get("max_len", _N_CTX), act_fn=ACTIVATIONS[act_fn],
        d_mlp=len(material.tensors[_NAMES[2]]), norm_eps=config.get("layer_norm_eps", 1e-5),
        norm_place="before" if config["norm_first"] else "after", final_norm="norm.weight" in material.tensors,
        causal=bool(config.get("causal", False)), positions=None, read_in="vectors", read_out="vectors",
        bias="layers.0.linear1.bias" in material.tensors,
    )  # fmt: skip
    key_map = {f"layers.*.{theirs}": ours and f"blocks.*.{ours}" for theirs, ours in _LAYER.items()}
    key_map |= {"norm.weight": "ln_final.w", "norm.bias": "ln_final.b"}
    return Plan(format="torch.nn.TransformerEncoder", cfg=cfg, key_map=key_map)
