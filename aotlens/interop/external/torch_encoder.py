"""`torch.nn.TransformerEncoder`: from vectors to vectors, without positions, with norms before the layers or after.

In memory the module tells its options; a state dict tells sizes alone, and `config=` the rest in PyTorch's words.
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import nn

from aotlens.interop.external import plans
from aotlens.interop.external.material import Material
from aotlens.interop.external.plans import Stated

_NAMES = ("layers.0.self_attn.in_proj_weight", "layers.0.norm1.weight", "layers.0.linear1.weight")
_LAYER: plans.Names = {
    "self_attn.in_proj_weight": "attn.W_QKV.T", "self_attn.in_proj_bias": "attn.b_QKV",
    **plans.linears({"self_attn.out_proj": "attn.O", "linear1": "mlp.in", "linear2": "mlp.out"}),
    **plans.norms({"norm1": "ln1", "norm2": "ln2"}),
}  # fmt: skip
#: A context where nothing limits it.
_N_CTX = 2048


def options(module: nn.Module) -> dict[str, Any]:
    """Return the options of an encoder in memory, as `TransformerEncoderLayer` takes them; none of another module."""
    if not isinstance(module, nn.TransformerEncoder):
        return {}
    layers = list(module.layers)
    settings = [_of_layer(layer) if isinstance(layer, nn.TransformerEncoderLayer) else {} for layer in layers]
    if not layers or any(other != settings[0] for other in settings):
        raise ValueError("<TransformerEncoder>: expected layers of nn.TransformerEncoderLayer with the same options.")
    norm = module.norm
    if norm is not None and (not isinstance(norm, nn.LayerNorm) or norm.eps != settings[0]["layer_norm_eps"]):
        raise ValueError(f"<TransformerEncoder>: expected a LayerNorm with the layers' eps at its end, got {norm}.")
    return settings[0]


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


def plan(material: Material, config: Stated, is_described: bool) -> plans.Plan:
    """Plan the model from the names and shapes, and `config` in the words of `nn.TransformerEncoderLayer`. Raises
    `ValueError` for what neither tells, and for an activation that ours has not."""
    path = material.path
    meanings = {"nhead": "heads of each layer", "norm_first": "True or False", "activation": "'relu' or 'gelu'"}
    plans.require_stated(path, config, meanings)
    d_model = material.shape(_NAMES[1], 1)[0]
    n_heads, act_fn = config["nhead"], str(config["activation"])
    plans.refuse(material, {
        f"activation={act_fn!r}": act_fn not in plans.ACTIVATIONS,
        f"nhead={n_heads} for d_model={d_model}": d_model % n_heads,
        f"norm_first={config['norm_first']!r}": not isinstance(config["norm_first"], bool),
    })  # fmt: skip
    cfg = plans.build_config(
        path, n_layers=plans.n_layers(material, "layers.", config), d_model=d_model, n_heads=n_heads,
        d_head=d_model // n_heads, n_ctx=config.get("max_len", _N_CTX), act_fn=plans.ACTIVATIONS[act_fn],
        d_mlp=len(material.tensors[_NAMES[2]]), norm_eps=config.get("layer_norm_eps", 1e-5),
        norm_place="before" if config["norm_first"] else "after", final_norm="norm.weight" in material.tensors,
        causal=bool(config.get("causal", False)), positions=None, read_in="vectors", read_out="vectors",
        bias="layers.0.linear1.bias" in material.tensors,
    )  # fmt: skip
    key_map = {**plans.in_layers("layers.", _LAYER), **plans.norms({"norm": "ln_final"})}
    return plans.Plan(format="torch.nn.TransformerEncoder", cfg=cfg, key_map=key_map)
