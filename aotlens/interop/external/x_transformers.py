"""x-transformers' `TransformerWrapper`, norms before the layers, by its state dict alone.

`config=` says in its words how many `heads` there are, whether it is `causal` (a `Decoder`), and how gains are stored.

Its layers are numbered through, attention 0, feed-forward 1, …, or all are attention. Positions, and a read-out that is
tied, are divided by √d_model; rotary pairs are neighbours. Options that leave no tensor are taken as at first.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from aotlens.interop.external import plans
from aotlens.interop.external.material import Material
from aotlens.interop.external.plans import Stated

_LAYERS = "attn_layers.layers."
#: Tensors by which the format is recognised.
NAMES = ("token_emb.emb.weight", f"{_LAYERS}0.1.to_q.weight")
_LAYER = plans.linears(
    {f"1.to_{letter}": f"attn.{letter.upper()}" for letter in "qkv"}
    | {"1.to_out": "attn.O", "1.ff.0.0": "mlp.in", "1.ff.2": "mlp.out", "gate": "mlp.gate"}
)
_GLU = "1.ff.0.proj"
_NORMS = {"gamma": ("layernorm", 1e-5), "g": ("rms", 1e-24)}  # whose RMS norm divides by the length alone
_N_CTX = 2048


def plan(material: Material, config: Stated, is_described: bool) -> plans.Plan:
    """Plan the model from the names and shapes, and `config` in the words of x-transformers. Raises `ValueError` for
    what neither tells, and for what is outside our family."""
    path, tensors = material.path, material.tensors
    meanings = {
        "heads": "of each layer",
        "causal": "True for a Decoder, False for an Encoder",
        "norm_add_unit_offset": "True where gains are stored less 1, as its newer versions do",
    }
    plans.require_stated(path, config, meanings)
    n_all, n_heads = plans.n_layers(material, _LAYERS), config["heads"]
    attends = [f"{_LAYERS}{number}.1.to_q.weight" in tensors for number in range(n_all)]
    has_mlp = False in attends
    norm = next((name for name in _NORMS if f"{_LAYERS}0.0.0.{name}" in tensors), None)
    shapes = [material.shape(f"{_LAYERS}0.1.to_{letter}.weight", 2) for letter in "qkv"]
    inner, d_model = shapes[0]
    in_turn = attends == [not has_mlp or number % 2 == 0 for number in range(n_all)]
    plans.refuse(material, {
        "layers in another order than attention, feed-forward, …": not in_turn,
        f"no {_LAYERS}0.0.0.gamma or .g: norms elsewhere than before the layers": norm is None,
        "keys or values of another width than queries": shapes.count(shapes[0]) != 3,
        f"heads={n_heads} for queries of width {inner}": inner % n_heads,
    })  # fmt: skip
    assert norm is not None
    fields: dict[str, Any] = {"positions": None, "n_ctx": config.get("max_seq_len") or _N_CTX}
    d_vocab, embedding = material.shape(NAMES[0], 2)[0], tensors[NAMES[0]]
    if "to_logits.weight" not in tensors:  # tied
        tensors["to_logits.weight"] = embedding.float() * d_model**-0.5
    if "pos_emb.emb.weight" in tensors:
        tensors["pos_emb.emb.weight"] = tensors["pos_emb.emb.weight"].float() * d_model**-0.5
        fields = {"positions": "learned", "n_ctx": material.shape("pos_emb.emb.weight", 2)[0]}
    elif (turns := tensors.pop("attn_layers.rotary_pos_emb.inv_freq", None)) is not None:
        fields |= {"positions": "rotary", "rotary": _rotary(turns)}
    act_fn = "silu" if config.get("ff_swish") else "gelu"
    if has_mlp:
        fields |= {**_feed_forward(tensors, n_all, path), "act_fn": act_fn}
    step = 1 + has_mlp
    key_map = {
        f"{_LAYERS}{number}.{theirs}": f"blocks.{number // step}.{ours}"
        for number in range(n_all)
        for theirs, ours in {**_LAYER, f"0.0.{norm}": f"ln{1 + number % step}.w"}.items()
    } | {
        "token_emb.emb.weight": "embed.W_E", "pos_emb.emb.weight": "pos_embed.W_pos",
        f"attn_layers.final_norm.{norm}": "ln_final.w", "to_logits.weight": "unembed.W_U.T",
    }  # fmt: skip
    cfg = plans.build_config(
        path, n_layers=n_all // step, d_model=d_model, n_heads=n_heads, d_head=inner // n_heads,
        d_vocab=d_vocab, causal=bool(config["causal"]), norm_eps=_NORMS[norm][1],
        norm_gain_offset=float(bool(config["norm_add_unit_offset"])),
        final_norm=f"attn_layers.final_norm.{norm}" in tensors,
        norm=_NORMS[norm][0], **fields,
    )  # fmt: skip
    doubt = "options of x-transformers that leave no tensor can make another model"
    return plans.Plan(format="x-transformers", cfg=cfg, key_map=key_map, doubt=doubt)


def _rotary(turns: Tensor) -> dict[str, Any]:
    """Return the settings of rotary positions by their frequencies θ_f = base^(−2f ÷ dim)."""
    dim = 2 * len(turns) if turns.ndim == 1 else 0
    if dim < 4:
        raise ValueError(f"rotary_pos_emb.inv_freq: expected 2 frequencies or more, found {list(turns.shape)}.")
    return {"dim": dim, "base": float(turns[-1].double() ** (-dim / (dim - 2))), "pairs": "interleaved"}


def _feed_forward(tensors: dict[str, Tensor], n_all: int, path: Any) -> dict[str, Any]:
    """Its fields of the configuration; what stands side by side in a gated one is taken apart."""
    gated = f"{_LAYERS}1.{_GLU}.weight" in tensors
    for number in range(1, n_all, 2) if gated else ():
        for kind in ("weight", "bias"):
            both = tensors.pop(f"{_LAYERS}{number}.{_GLU}.{kind}", None)
            if both is not None:
                plain, gate = both.chunk(2)
                tensors |= {f"{_LAYERS}{number}.1.ff.0.0.{kind}": plain, f"{_LAYERS}{number}.gate.{kind}": gate}
    into = tensors.get(f"{_LAYERS}1.1.ff.0.0.weight")
    if into is None or into.ndim != 2:
        raise ValueError(f"{path}: expected {_LAYERS}1.1.ff.0.0.weight, or .0.proj.weight, of two dimensions.")
    has_bias = f"{_LAYERS}1.1.ff.2.bias" in tensors
    fields = {"bias": True, "qkv_bias": False, "read_out_bias": False} if has_bias else {}
    return {"d_mlp": len(into), "gated_mlp": gated, **fields}
