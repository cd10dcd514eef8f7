"""TransformerLens's old format, which its current release no longer loads in full.

State dicts of `HookedTransformer`, whose keys are `blocks.0.attn.W_Q` and so on: of the published attention-only models
(`NeelNanda/Attn_Only_1L512W_C4_Code`, …), of task models, or inside a pickled module. Shortformer positions are added
to the normalised inputs of queries and keys, not to values or to the stream, which is `positions="qk"` here.

Norms: `LN` has gains and biases; `LNPre` had them folded into its neighbours, so its gain is 1 and its bias 0; none at
all is `norm=None`. As many outputs as tokens are tokens; more or fewer are classes at every position.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from torch import Tensor

from aotlens.interop.external import plans
from aotlens.interop.external.material import Material
from aotlens.interop.external.plans import Stated
from aotlens.models.config_checks import ACTIVATIONS

#: Tensors by which the format is recognised.
NAMES = ("embed.W_E", "blocks.0.attn.W_Q", "blocks.0.attn.W_O")
#: Buffers, which hold no weights.
_BUFFERS = ("blocks.*.attn.mask", "blocks.*.attn.IGNORE")
#: Keys that change what a model computes in ways that ours does not, and the values that leave it as it is.
_STRANGE = (
    "architecture", "attn_scores_soft_cap", "final_rms", "gated_mlp", "num_experts", "output_logits_soft_cap",
    "parallel_attn_mlp", "post_embedding_ln", "scale_attn_by_inverse_layer_idx", "use_local_attn",
    "use_normalization_before_and_after", "use_qk_norm",
)  # fmt: skip
_HARMLESS = (None, False, 0, -1, "neel")
_POSITIONS = {"standard": "learned", "shortformer": "qk"}


def plan(material: Material, config: Stated, is_described: bool) -> plans.Plan:
    """Plan the model from the names and shapes, and `config` in TransformerLens's words.

    `is_described`: a configuration came with the weights, so that what it does not mention has TransformerLens's
    default. Raises `ValueError` for what neither tells, and for what is outside our family.
    """
    tensors, path = material.tensors, material.path
    tensors.update(_turned(material, config))
    known_sizes = {name: config[name] for name in _SIZES if config.get(name) not in (None, -1)}
    sizes = {**_sizes(material), **known_sizes}
    has_mlp = any(".mlp." in name for name in tensors)
    norm, positions = _norm(material, config), _positions(material, config, is_described)
    direction = _direction(material, config, is_described)
    act_fn = config.get("act_fn")
    meanings = {
        "n_heads": ("heads of each layer", not {"n_heads", "d_head"} <= sizes.keys()),
        "d_head": ("the width of a head", not {"n_heads", "d_head"} <= sizes.keys()),
        "n_ctx": ("the longest sequence", "n_ctx" not in sizes),
        "normalization_type": ("'LN', 'LNPre' where gains and biases were folded away, or None", norm == "?"),
        "positional_embedding_type": ("'standard', or 'shortformer' for queries and keys only", positions == "?"),
        "attention_dir": ("'causal' or 'bidirectional'", direction == "?"),
        "act_fn": (f"one of {', '.join(ACTIVATIONS)}", has_mlp and act_fn is None),
    }
    plans.require_stated(path, {}, {name: meaning for name, (meaning, is_unsaid) in meanings.items() if is_unsaid})
    stated, groups = {name: config.get(name) for name in _STRANGE}, config.get("n_key_value_heads")
    plans.refuse(material, {
        **{f"{name}={value!r}": value not in _HARMLESS for name, value in stated.items()},
        f"normalization_type={norm!r}": norm not in ("LN", "LNPre", None),
        f"positional_embedding_type={positions!r}": positions not in (*_POSITIONS, None),
        f"attention_dir={direction!r}": direction not in ("causal", "bidirectional"),
        f"act_fn={act_fn!r}": has_mlp and str(act_fn) not in ACTIVATIONS,
        **_odd_masks(material, direction),
        f"n_key_value_heads={groups} for {sizes['n_heads']} heads": groups not in (None, sizes["n_heads"]),
    })  # fmt: skip
    cfg = plans.build_config(
        path,
        **{name: sizes[name] for name in ("n_layers", "d_model", "n_heads", "d_head", "n_ctx", "d_vocab")},
        d_mlp=sizes.get("d_mlp") if has_mlp else None,
        act_fn=act_fn if has_mlp else "gelu",
        attn_scale=_attn_scale(config, sizes["d_head"]),
        norm=None if norm is None else "layernorm",
        norm_eps=config["eps"] if "eps" in config else config.get("ln_eps", 1e-5),
        causal=direction == "causal",
        positions=None if positions is None else _POSITIONS[str(positions)],
        bias=any(name.rsplit(".", 1)[-1].startswith("b_") for name in tensors),
        **_outputs(material, config, sizes["d_vocab"]),
    )
    return plans.Plan(
        format="TransformerLens's old format",
        cfg=cfg,
        key_map=dict.fromkeys(_BUFFERS),
        may_lack=("b", "w") if norm == "LNPre" else ("b_",),
        note="Folded norms are normalization_type 'LNPre'." if norm == "LN" else "",
    )


#: The dimension of the residual stream in a layer's matrices and those at both ends, counted from the last.
_STREAM = {"W_E": -1, "W_Q": -2, "W_K": -2, "W_V": -2, "W_O": -1, "W_in": -2, "W_out": -1, "W_U": -2}
_LAYOUTS = {"W_E": ("d_vocab d_model", "d_model d_vocab"), "W_U": ("d_model d_vocab", "d_vocab d_model")}


def _turned(material: Material, config: dict[str, Any]) -> dict[str, Tensor]:
    """Return the matrices that code of 2022 stored as `[out, in]`, transposed, with a warning; those that a shape does
    not tell, as the others. Raises `ValueError` where it does not tell either of both ends, which differed in that
    code: one of them is asked for as `config={"W_E": …}`."""
    stream = material.tensors.get("pos_embed.W_pos", material.tensors["embed.W_E"]).shape[-1]
    turned: dict[str, Tensor] = {}
    either: dict[str, Tensor] = {}
    for name, tensor in material.tensors.items():
        axis = _STREAM.get(name.rsplit(".", 1)[-1])
        if axis is not None and tensor.ndim > 1 and tensor.shape[-3 - axis] == stream:
            (turned if tensor.shape[axis] != stream else either)[name] = tensor
    if not turned:
        return {}
    ends = {name.rsplit(".", 1)[-1]: name for name in either if name.rsplit(".", 1)[-1] in _LAYOUTS}
    known = {end: config[end] for end in ends if config.get(end) in _LAYOUTS[end]}
    plans.require_stated(material.path, known, {end: " or ".join(map(repr, _LAYOUTS[end])) for end in ends})
    for end, name in ends.items():
        if config[end] == _LAYOUTS[end][0]:
            del either[name]
    turned |= either
    names = ", ".join(sorted(turned)[:4])
    warnings.warn(f"{material.path}: {names}, … are [out, in], as in code of 2022: read transposed.", stacklevel=5)
    return {name: tensor.mT for name, tensor in turned.items()}


_SIZES = ("n_layers", "d_model", "n_heads", "d_head", "n_ctx", "d_vocab", "d_mlp")


def _sizes(material: Material) -> dict[str, int]:
    """Every size that a shape shows."""
    tensors = material.tensors
    d_vocab, d_model = material.shape("embed.W_E", 2)
    sizes = {"n_layers": plans.n_layers(material, "blocks."), "d_vocab": d_vocab, "d_model": d_model}
    query = tensors["blocks.0.attn.W_Q"]
    if query.ndim == 3:
        sizes |= {"n_heads": query.shape[0], "d_head": query.shape[2]}
    if "pos_embed.W_pos" in tensors:
        sizes["n_ctx"] = material.shape("pos_embed.W_pos", 2)[0]
    elif "blocks.0.attn.mask" in tensors:
        sizes["n_ctx"] = material.shape("blocks.0.attn.mask", 2)[0]
    if "blocks.0.mlp.W_in" in tensors:
        sizes["d_mlp"] = material.shape("blocks.0.mlp.W_in", 2)[1]
    return sizes


def _norm(material: Material, config: dict[str, Any]) -> Any:
    for name in ("normalization", "normalization_type"):
        if name in config:
            return config[name]
    return "LN" if "blocks.0.ln1.w" in material.tensors else "?"


def _positions(material: Material, config: dict[str, Any], is_described: bool) -> Any:
    if "pos_embed.W_pos" not in material.tensors:
        kind = config.get("positional_embedding_type")
        return None if kind in ("standard", "shortformer", None) else kind
    if config.get("shortformer_pos"):
        return "shortformer"
    return config.get("positional_embedding_type", "standard" if is_described else "?")


def _direction(material: Material, config: dict[str, Any], is_described: bool) -> Any:
    """Causal or not: as stated, unless a mask shows later keys. A lower-triangular mask tells nothing."""
    if config.get("attention_dir") is not None:
        return config["attention_dir"]
    mask = material.tensors.get("blocks.0.attn.mask")
    if mask is not None and mask.ndim == 2 and bool(mask.bool().triu(1).any()):
        return "bidirectional"
    return "causal" if is_described else "?"


def _odd_masks(material: Material, direction: Any) -> dict[str, bool]:
    """List what blocks' masks say that the model would not do: hide earlier keys, or show later ones."""
    masks = [mask.bool() for name, mask in material.tensors.items() if name.endswith(".attn.mask") and mask.ndim == 2]
    causal = direction == "causal"
    return {
        "masks of blocks.*.attn.mask that hide earlier keys": causal and any(bool((~m).tril().any()) for m in masks),
        "masks of blocks.*.attn.mask that show later keys, with attention_dir='causal'": (
            causal and any(bool(m.triu(1).any()) for m in masks)
        ),
    }


def _outputs(material: Material, config: dict[str, Any], d_vocab: int) -> dict[str, Any]:
    readout = material.tensors.get("unembed.W_U")
    d_out = config.get("d_vocab_out")
    if d_out in (None, -1):
        d_out = d_vocab if readout is None else material.shape("unembed.W_U", 2)[1]
    return {} if d_out == d_vocab else {"read_out": "classes", "d_out": d_out, "pooling": None}


def _attn_scale(config: dict[str, Any], d_head: int) -> Any:
    """Their `attn_scale` divides scores; `use_attn_scale=False` leaves them alone."""
    if not config.get("use_attn_scale", True):
        return 1.0
    divisor = config.get("attn_scale", -1.0)
    if not isinstance(divisor, int | float):
        return divisor  # `ModelConfig` refuses what is not None
    return None if divisor <= 0 or math.isclose(divisor, math.sqrt(d_head)) else 1 / divisor
