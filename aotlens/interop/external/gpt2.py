"""GPT-2 as Hugging Face keeps it, and as nanoGPT does.

Both have the same names but for `transformer.` before them. Hugging Face's matrices are `[in, out]` (`Conv1D`),
nanoGPT's `[out, in]` (`Linear`): the shape of `c_attn`, d_model × 3·d_model, tells which. The read-out has no bias, and
the layers may have theirs (`read_out_bias=False`). Forks of nanoGPT, minGPT among them, have its names and other
activations and positions: what their settings do not tell comes with a warning.
"""

from __future__ import annotations

from aotlens.interop.external.material import Material
from aotlens.interop.external.plan import (
    ACTIVATIONS,
    Plan,
    asked,
    build_config,
    is_tied,
    n_layers,
    refuse,
    require_sizes,
)
from aotlens.interop.external.settings import NO_CODE, Stated, completed, field_names

_LAYER = {
    "ln_1.weight": "ln1.w",
    "ln_1.bias": "ln1.b",
    "attn.c_attn.weight": "attn.W_QKV",
    "attn.c_attn.bias": "attn.b_QKV",
    "attn.c_proj.weight": "attn.W_O",
    "attn.c_proj.bias": "attn.b_O",
    "ln_2.weight": "ln2.w",
    "ln_2.bias": "ln2.b",
    "mlp.c_fc.weight": "mlp.W_in",
    "mlp.c_fc.bias": "mlp.b_in",
    "mlp.c_proj.weight": "mlp.W_out",
    "mlp.c_proj.bias": "mlp.b_out",
    # Masks, which hold no weights.
    "attn.bias": None,
    "attn.masked_bias": None,
}
#: The settings that nanoGPT's own training script keeps, whose GELU is the exact one.
_NANOGPT = {"n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size"}
_NAMES = ("wte.weight", "h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight")
_WHOLE = {
    "wte.weight": "embed.W_E",
    "wpe.weight": "pos_embed.W_pos",
    "ln_f.weight": "ln_final.w",
    "ln_f.bias": "ln_final.b",
}


def matches(material: Material) -> Material | None:
    """Return the tensors by the names of GPT-2; None if they have others."""
    return material.under(*_NAMES)


def plan(material: Material, config: Stated, is_described: bool) -> Plan:
    """Plan the model from the names and shapes, and `config` in the words of Hugging Face or nanoGPT.

    `is_described`: a configuration came with the weights, so that what it does not mention has its library's default.
    Raises `ValueError` for what neither tells, and for what is outside our family.
    """
    tensors, path = material.tensors, material.path
    require_sizes(path, config, ("n_head", "n_heads", "n_ctx"))
    d_vocab, d_model = material.shape("wte.weight", 2)
    is_linear = material.shape("h.0.attn.c_attn.weight", 2)[0] == 3 * d_model  # nanoGPT
    has_mlp = "h.0.mlp.c_fc.weight" in tensors
    doubts = _doubts(config, is_linear, has_mlp, "wpe.weight" in tensors)
    kind = config.get("model_type", "gpt2")
    if is_described and not is_linear and kind == "gpt2":
        done = completed("gpt2", dict(config))
        config.update({} if done is None else done.to_dict())
        doubts += [] if done else [NO_CODE.format("gpt2")]
    n_heads = config.get("n_head") or config.get("n_heads")
    act_fn = config.get("activation_function", "gelu" if is_linear else None)
    unsaid = {}
    if n_heads is None:
        unsaid["n_head"] = "heads of each layer"
    if has_mlp and act_fn is None:
        unsaid["activation_function"] = f"one of {', '.join(ACTIVATIONS)}"
    if unsaid:
        raise asked(path, unsaid)
    problems = [
        f"{name}={config[name]!r}"
        for name in ("add_cross_attention", "scale_attn_by_inverse_layer_idx")
        if config.get(name)
    ]
    if kind != "gpt2":  # GPTBigCode's heads are in another order
        problems.append(f"model_type={kind!r}")
    if has_mlp and str(act_fn) not in ACTIVATIONS:
        problems.append(f"activation_function={act_fn!r}")
    if not isinstance(n_heads, int) or n_heads < 1 or d_model % n_heads:
        problems.append(f"n_head={n_heads!r} for d_model={d_model}")
    refuse(material, problems)
    assert isinstance(n_heads, int)
    has_positions, block_size = "wpe.weight" in tensors, config.get("n_ctx") or config.get("block_size", 1024)
    tied = is_tied(tensors, "wte.weight", "lm_head.weight", bool(config.get("tie_word_embeddings", True)))
    bias = "h.0.attn.c_attn.bias" in tensors
    cfg = build_config(
        path,
        n_layers=n_layers(material, "h."),
        d_model=d_model,
        n_heads=n_heads,
        d_head=d_model // n_heads,
        n_ctx=material.shape("wpe.weight", 2)[0] if has_positions else block_size,
        d_vocab=d_vocab,
        d_mlp=material.shape("h.0.mlp.c_fc.weight", 2)[0 if is_linear else 1] if has_mlp else None,
        act_fn=ACTIVATIONS[str(act_fn)] if has_mlp else "gelu",
        attn_scale=None if config.get("scale_attn_weights", True) else 1.0,
        norm="layernorm" if "h.0.ln_1.weight" in tensors else None,
        norm_eps=config.get("layer_norm_epsilon", 1e-5),
        positions="learned" if has_positions else None,
        bias=bias,
        read_out_bias=False if bias else None,
        tied_embeddings=tied,
    )
    key_map: dict[str, str | None] = {**_WHOLE}
    for name, ours in _LAYER.items():
        transposed = ".T" if is_linear and ours is not None and ".W_" in ours else ""
        key_map[f"h.*.{name}"] = None if ours is None else f"blocks.*.{ours}{transposed}"
    key_map["lm_head.weight"] = None if tied else "unembed.W_U.T"
    name = "nanoGPT" if is_linear else "Hugging Face's GPT-2"
    return Plan(format=name, cfg=cfg, key_map=key_map, doubt="; ".join(doubts))


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
