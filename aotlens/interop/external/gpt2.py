"""GPT-2 as Hugging Face keeps it, and as nanoGPT does.

Both have the same names but for `transformer.` before them. Hugging Face's matrices are `[in, out]` (`Conv1D`),
nanoGPT's `[out, in]` (`Linear`): the shape of `c_attn`, d_model × 3·d_model, tells which. The read-out has no bias, and
the layers may have theirs (`read_out_bias=False`). Forks of nanoGPT, minGPT among them, have its names and other
activations and positions: what their settings do not tell comes with a warning.
"""

from __future__ import annotations

from aotlens.interop.external import plans
from aotlens.interop.external.material import Material
from aotlens.interop.external.plans import NO_CODE, Stated, completed, field_names
from aotlens.untrusted import boundary

#: A layer's tensors; None for masks, which hold no weights.
_LAYER: plans.Names = {
    **plans.norms({"ln_1": "ln1", "ln_2": "ln2"}),
    **plans.linears({
        "attn.c_attn": "attn.QKV", "attn.c_proj": "attn.O", "mlp.c_fc": "mlp.in", "mlp.c_proj": "mlp.out",
    }),
    "attn.bias": None, "attn.masked_bias": None,
}  # fmt: skip
#: The settings that nanoGPT's own training script keeps, whose GELU is the exact one.
_NANOGPT = {"n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size"}
#: Tensors by which the format is recognised.
NAMES = ("wte.weight", "h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight")
_WHOLE: plans.Names = {"wte.weight": "embed.W_E", "wpe.weight": "pos_embed.W_pos", **plans.norms({"ln_f": "ln_final"})}


def plan(material: Material, config: Stated, is_described: bool) -> plans.Plan:
    """Plan the model from the names and shapes, and `config` in the words of Hugging Face or nanoGPT.

    `is_described`: a configuration came with the weights, so that what it does not mention has its library's default.
    Raises `ValueError` for what neither tells, and for what is outside our family.
    """
    tensors, path = material.tensors, material.path
    d_vocab, d_model = material.shape("wte.weight", 2)
    is_linear = material.shape("h.0.attn.c_attn.weight", 2)[0] == 3 * d_model  # nanoGPT
    has_mlp = "h.0.mlp.c_fc.weight" in tensors
    doubts = _doubts(config, is_linear, has_mlp, "wpe.weight" in tensors)
    kind = config.get("model_type", "gpt2")
    if is_described and not is_linear and kind == "gpt2":
        with boundary(path, "weights of GPT-2 with their settings"):
            done = completed("gpt2", dict(config))
        config.update({} if done is None else done.to_dict())
        doubts += [] if done else [NO_CODE.format("gpt2")]
    n_heads = config.get("n_head") or config.get("n_heads")
    act_fn = config.get("activation_function", "gelu" if is_linear else None)
    stated = {"n_head": n_heads or None, "activation_function": act_fn if has_mlp else "none"}
    activations = f"one of {', '.join(plans.ACTIVATIONS)}"
    plans.require_stated(path, stated, {"n_head": "heads of each layer", "activation_function": activations})
    switches = ("add_cross_attention", "scale_attn_by_inverse_layer_idx")
    plans.refuse(material, {
        **{f"{name}={config.get(name)!r}": config.get(name) for name in switches},
        f"model_type={kind!r}": kind != "gpt2",  # GPTBigCode's heads are in another order
        f"activation_function={act_fn!r}": has_mlp and str(act_fn) not in plans.ACTIVATIONS,
        f"n_head={n_heads!r} for d_model={d_model}": n_heads < 1 or d_model % n_heads,
    })  # fmt: skip
    has_positions, block_size = "wpe.weight" in tensors, config.get("n_ctx") or config.get("block_size", 1024)
    tied = plans.is_tied(tensors, "wte.weight", "lm_head.weight", bool(config.get("tie_word_embeddings", True)))
    bias = "h.0.attn.c_attn.bias" in tensors
    cfg = plans.build_config(
        path,
        n_layers=plans.n_layers(material, "h.", config),
        d_model=d_model,
        n_heads=n_heads,
        d_head=d_model // n_heads,
        n_ctx=material.shape("wpe.weight", 2)[0] if has_positions else block_size,
        d_vocab=d_vocab,
        d_mlp=material.shape("h.0.mlp.c_fc.weight", 2)[0 if is_linear else 1] if has_mlp else None,
        act_fn=plans.ACTIVATIONS[str(act_fn)] if has_mlp else "gelu",
        attn_scale=None if config.get("scale_attn_weights", True) else 1.0,
        norm="layernorm" if "h.0.ln_1.weight" in tensors else None,
        norm_eps=config.get("layer_norm_epsilon", 1e-5),
        positions="learned" if has_positions else None,
        bias=bias,
        read_out_bias=False if bias else None,
        tied_embeddings=tied,
    )
    layer = _LAYER if is_linear else {name: ours and ours.removesuffix(".T") for name, ours in _LAYER.items()}
    key_map = {**_WHOLE, **plans.in_layers("h.", layer), "lm_head.weight": None if tied else "unembed.W_U.T"}
    name = "nanoGPT" if is_linear else "Hugging Face's GPT-2"
    return plans.Plan(format=name, cfg=cfg, key_map=key_map, doubt="; ".join(doubts))


def _doubts(config: Stated, is_linear: bool, has_mlp: bool, has_positions: bool) -> list[str]:
    """List what neither tensors nor settings tell, and another model could have."""
    doubts = [] if has_positions else ["it has no wpe.weight and is read as a model without positions"]
    if not is_linear:
        return doubts
    if has_mlp and not config.get("activation_function") and not config.keys() >= _NANOGPT:
        doubts.append("nothing states its activation, read as the exact GELU of nanoGPT (minGPT and build-nanogpt have "
                      "activation_function='gelu_new')")  # fmt: skip
    known = {*_NANOGPT, "n_heads", "n_ctx", "dropout", "activation_function", *field_names(config)}
    unread = sorted(name for name in config.keys() - known if config[name] not in (None, False))
    return doubts + ([f"its settings {', '.join(unread)} are not read"] if unread else [])
