"""Decoders as Hugging Face keeps them, from Pythia and Llama on: one reader for the table of families."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

from torch import Tensor

from aotlens.interop.external.decoder_families import FAMILIES, Family, Settings, both
from aotlens.interop.external.decoder_settings import require_kinds
from aotlens.interop.external.material import Material
from aotlens.interop.external.plan import Plan, build_config, is_tied, refuse, require_sizes
from aotlens.interop.external.settings import NO_CODE, Stated, completed

#: Families that read images as well, by the family of their text part.
_WITH_IMAGES = {"gemma3": "gemma3_text"}
#: Every `model_type` that this reader knows.
KINDS = (*FAMILIES, *_WITH_IMAGES)
_IMAGES = re.compile(r"model\.(vision_tower|multi_modal_projector)\.")


def matches(material: Material) -> Material | None:
    """Return the tensors of a model whose config.json names a family of the table; None for others."""
    return material if material.model_type in KINDS else None


def plan(material: Material, config: Stated, is_described: bool) -> Plan:
    """Plan the model from settings and tensors' shapes. Raises `ValueError` for settings that no model of ours has."""
    kind, path = str(config.get("model_type")), material.path
    if has_images := kind in _WITH_IMAGES:
        config, kind = _text_config(path, config), _WITH_IMAGES[kind]
    family = FAMILIES[kind]
    require_sizes(path, config, (
        "num_attention_heads", "n_head", "num_heads", "hidden_size", "n_embd", "head_dim", "num_key_value_heads",
        "max_position_embeddings", "n_positions", "seq_length", "sliding_window", "num_kv_heads",
    ))  # fmt: skip
    require_kinds(path, config)
    embedded = next(iter(family.ends))
    *before, module, weight = embedded.split(".")
    bare = material.under(f"{module}.{weight}")
    if bare is None:
        raise ValueError(f"{path}: expected {embedded} of a {kind!r}, found {', '.join([*material.tensors][:6])}.")
    tensors = {
        name.replace("lm_head.", f"{family.read_out}.") if name.startswith(("lm_head.", f"{family.read_out}."))
        else ".".join([*before, name]): tensor for name, tensor in bare.tensors.items()
    }  # fmt: skip
    images = {name: None for name in tensors if has_images and _IMAGES.match(name)}
    if has_images:
        warnings.warn(
            f"{path}: the text part is read, and {len(images)} tensors of images are left out; its logits are those of "
            "prompts without images.",
            stacklevel=4,
        )
    n_layers = 1 + max(
        (int(number) for name in tensors if name.startswith(family.layers)
         if (number := name.removeprefix(family.layers).split(".", 1)[0]).isdecimal()), default=-1,
    )  # fmt: skip
    if n_layers > len(tensors):
        raise ValueError(f"{path}: expected tensors of each of {n_layers:,} layers, found {len(tensors)} in all.")
    stated, doubt, trouble = _stated(kind, config, n_layers)
    s = Settings(stated, n_layers, [])
    fields = family.fields(s)
    n_heads, d_head = s.n_heads, s.d_head
    if n_heads < 1 or (s.get("head_dim") is None and s.d_model % n_heads):
        s.problems.append(f"{n_heads} heads for a hidden size of {s.d_model}")
    refuse(material, s.problems)
    grouped = fields.get("n_kv_heads") not in (None, n_heads)
    fields["n_kv_heads"] = fields.get("n_kv_heads") if grouped else None
    read_out = f"{family.read_out}.weight"
    tied = is_tied(tensors, embedded, read_out, bool(s.get("tie_word_embeddings", default=True)))
    names = {f"{family.layers}*.{theirs}": ours and f"blocks.*.{ours}" for theirs, ours in family.names.items()}
    key_map: dict[str, str | None] = {**names, **family.ends, **both(family.read_out, "unembed.U"), **images}
    if tied and (family.embedding or f"{family.read_out}.bias" in tensors):  # a matrix of its own, equal to begin with
        tensors[read_out], tied = tensors[embedded], False
    if family.embedding is not None:
        tensors[embedded] = family.embedding(tensors, tensors[embedded], s)
    if tied:
        key_map |= {read_out: None}
    fields["tied_embeddings"] = tied
    rotary = fields.get("rotary", {})
    if rotary.get("scaling") == "dynamic" and type(rotary["original_n_ctx"]) is int and rotary["factor"]:
        fields["n_ctx"] = max(fields["n_ctx"], int(rotary["original_n_ctx"] * rotary["factor"]))
    d_vocab, d_model = tensors[embedded].shape
    sizes = n_heads, fields["n_kv_heads"] or n_heads, d_head
    for layer in range(n_layers):
        _prepare(tensors, f"{family.layers}{layer}.", family, *sizes)
    into = [f"{family.layers}0.{theirs}" for theirs, ours in family.names.items() if ours == "mlp.W_in.T"]
    d_mlp = next((len(tensors[name]) for name in into if name in tensors), None)
    if d_mlp is None:
        first = [name for name in tensors if name.startswith(f"{family.layers}0.")] or [*tensors]
        raise ValueError(
            f"{path}: expected {' or '.join(into)} of a {kind!r}, found {', '.join(first[:9])}. Is it whole?"
        )
    cfg = build_config(
        path, n_layers=n_layers, d_model=d_model, n_heads=n_heads, d_head=d_head, d_vocab=d_vocab,
        d_mlp=d_mlp, **fields,
    )  # fmt: skip
    refuse(material, trouble)
    if family.fused:
        for part in "QKV":
            key_map |= {f"{family.layers}*.{part}.weight": f"blocks.*.attn.W_{part}"}
            key_map |= {f"{family.layers}*.{part}.bias": f"blocks.*.attn.b_{part}"}
    marked = {
        theirs: _grouped(ours.replace("{n_ctx}", str(cfg.n_ctx)), grouped) if ours else ours
        for theirs, ours in key_map.items()
    }
    material.tensors.clear()
    material.tensors.update(tensors)
    lacks = ("b", "w") if kind == "olmo" else ("b",)  # whose norms have no weights
    return Plan(format=f"Hugging Face's {kind}", cfg=cfg, key_map=marked, may_lack=(*lacks, "_b"), doubt=doubt)


def _stated(kind: str, config: Stated, n_layers: int) -> tuple[dict[str, Any], str, list[str]]:
    """The settings as `transformers` reads them; why they may be others; and what it says of those that it refuses."""
    settings = Stated(config)
    settings.asked = config.asked
    if not settings.get("rope_parameters"):  # older names, which `transformers` reads only where the newer is missing
        settings.asked |= {"rope_theta", "rope_scaling", "partial_rotary_factor", "rotary_pct", "rotary_emb_base"}
    try:
        done = completed(kind, dict(config), n_layers)
    except ValueError as error:
        return settings, "", [str(error)]
    settings.update({} if done is None else done.to_dict())
    return settings, "" if done else NO_CODE.format(kind), []


def _text_config(path: Path, config: Stated) -> Stated:
    """The settings of the text part of a model that reads images as well."""
    text = config.get("text_config")
    if not isinstance(text, dict):
        raise ValueError(f"{path}: expected the text part's settings in config.json's text_config, found {text!r:.80}.")
    settings = Stated({**text, **config})
    settings.asked = config.asked
    return settings


def _grouped(ours: str, grouped: bool) -> str:
    """Return the name under which keys and values of groups are stored, one of their own."""
    for part in ("W_K", "W_V", "b_K", "b_V"):
        if grouped and f".attn.{part}" in ours:
            return ours.replace(f".attn.{part}", f".attn._{part}")
    return ours


def _prepare(tensors: dict[str, Tensor], layer: str, family: Family, n_heads: int, n_groups: int, d_head: int) -> None:
    """Split a layer's tensors that are several into views, and name tensors twice that are used twice."""
    for theirs, copy in family.alike.items():
        for name in [name for name in tensors if name.startswith(f"{layer}{theirs}")]:
            tensors.setdefault(name.replace(f"{layer}{theirs}", f"{layer}{copy}"), tensors[name])
    for theirs, parts in family.side_by_side.items():
        if (fused := tensors.pop(f"{layer}{theirs}.weight", None)) is None:
            continue
        rows = [n_heads * d_head, n_groups * d_head, n_groups * d_head] if len(parts) == 3 else [len(fused) // 2] * 2
        if sum(rows) != len(fused):
            raise ValueError(f"{layer}{theirs}: expected {sum(rows)} rows, of {len(parts)} parts, found {len(fused)}.")
        for part, tensor in zip(parts, fused.split(rows), strict=True):
            tensors[f"{layer}{part}.weight"] = tensor
    for kind in ("weight", "bias") if family.fused else ():
        name = f"{layer}{family.fused}.{kind}"
        if name not in tensors:
            continue
        fused = tensors.pop(name)
        if n_heads % n_groups or len(fused) != (n_heads + 2 * n_groups) * d_head:
            shape = list(fused.shape)
            raise ValueError(f"{name}: expected queries, keys and values of {n_heads} heads, found {shape}.")
        grouped = fused.unflatten(0, (n_groups, n_heads // n_groups + 2, d_head))
        queries, keys, values = grouped[:, :-2].flatten(0, 1), grouped[:, -2], grouped[:, -1]
        for part, tensor in zip("QKV", (queries, keys, values), strict=True):  # [head, d_head, d_model] each
            tensors[f"{layer}{part}.{kind}"] = tensor.mT if kind == "weight" else tensor
