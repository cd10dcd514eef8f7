"""Decoders as Hugging Face keeps them, from Pythia and Llama on: one reader for the table of families."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

from torch import Tensor

from aotlens.interop.external import decoder_families as families
from aotlens.interop.external import plans
from aotlens.interop.external.decoder_families import FAMILIES, Settings
from aotlens.interop.external.material import Material
from aotlens.interop.external.plans import NO_CODE, Stated, completed

#: Families that read images as well, by the family of their text part.
_WITH_IMAGES = {"gemma3": "gemma3_text"}
#: Every `model_type` that this reader knows.
KINDS = (*FAMILIES, *_WITH_IMAGES)
_IMAGES = ("vision_tower.", "multi_modal_projector.")
#: Older names of settings, which `transformers` reads only where the newer is missing.
_OLDER = ("rope_theta", "rope_scaling", "partial_rotary_factor", "rotary_pct", "rotary_emb_base")


def matches(material: Material) -> Material | None:
    """Return the tensors of a model whose config.json names a family of the table; None for others."""
    if material.model_type not in KINDS:
        return None
    embedding = next((bare for name in families.EMBEDDINGS if (bare := material.under(name)) is not None), None)
    if embedding is None:
        raise ValueError(
            f"{material.path}: expected {' or '.join(families.EMBEDDINGS)} of a {material.model_type!r}, found "
            f"{', '.join([*material.tensors][:6])}."
        )
    return embedding


def plan(material: Material, config: Stated, is_described: bool) -> plans.Plan:
    """Plan the model from settings and tensors' shapes. Raises `ValueError` for settings that no model of ours has."""
    kind, path, tensors = str(config.get("model_type")), material.path, material.tensors
    key_map: dict[str, str | None] = dict(families.ENDS)
    if kind in _WITH_IMAGES:
        config, kind = _text_config(path, config), _WITH_IMAGES[kind]
        images = [name for name in tensors if name.startswith(_IMAGES)]
        key_map |= dict.fromkeys(images)
        warnings.warn(
            f"{path}: the text part is read, and {len(images)} tensors of images are left out; its logits are those of "
            "prompts without images.",
            stacklevel=4,
        )
    plans.require_sizes(path, config)
    families.require_bounds(path, config)
    family, stack = FAMILIES[kind], "h." if plans.n_layers(material, "h.") else "layers."
    depth = plans.n_layers(material, stack, config)
    s, doubt = _stated(material, kind, config, depth)
    fields = family.fields(s)
    n_heads, d_head = s.n_heads, s.d_head
    if n_heads < 1 or (s.get("head_dim") is None and s.d_model % n_heads):
        s.problems.append(f"{n_heads} heads for a hidden size of {s.d_model}")
    plans.refuse(material, s.problems)
    if fields["n_kv_heads"] == n_heads:
        fields["n_kv_heads"] = None
    embedded = next(name for name in families.EMBEDDINGS if name in tensors)
    read_out = "embed_out.weight" if "embed_out.weight" in tensors else "lm_head.weight"
    tied = plans.is_tied(tensors, embedded, read_out, bool(s.get("tie_word_embeddings", default=True)))
    if tied and (family.embedding or "lm_head.bias" in tensors):  # a matrix of its own, equal to begin with
        tensors[read_out], tied = tensors[embedded], False
    if family.embedding is not None:
        tensors[embedded] = family.embedding(tensors, tensors[embedded], s)
    key_map |= {read_out: None} if tied else {}
    rotary = fields.get("rotary", {})
    if rotary.get("scaling") == "dynamic" and type(rotary["original_n_ctx"]) is int and rotary["factor"]:
        fields["n_ctx"] = max(fields["n_ctx"], int(rotary["original_n_ctx"] * rotary["factor"]))
    d_vocab, d_model = tensors[embedded].shape
    for layer in range(depth):
        _split(tensors, f"{stack}{layer}.", n_heads, fields["n_kv_heads"] or n_heads, d_head)
        if fields["parallel"] and kind != "gpt_neox":  # whose MLPs have norms of their own
            _share(tensors, f"{stack}{layer}.")
    into = [f"{stack}0.{theirs}" for theirs, ours in families.LAYER.items() if ours == "mlp.W_in.T"]
    d_mlp = next((len(tensors[name]) for name in into if name in tensors), None)
    if d_mlp is None:
        first = [name for name in tensors if name.startswith(f"{stack}0.")] or [*tensors]
        raise ValueError(
            f"{path}: expected {' or '.join(into)} of a {kind!r}, found {', '.join(first[:9])}. Is it whole?"
        )
    cfg = plans.build_config(
        material, n_layers=depth, d_model=d_model, n_heads=n_heads, d_head=d_head, d_vocab=d_vocab, d_mlp=d_mlp,
        tied_embeddings=tied, **fields,
    )  # fmt: skip
    outside = {} if fields.get("norm_place") is None else families.OUTPUT_NORMS
    key_map |= plans.in_layers(stack, {**families.LAYER, **outside})
    mark = r".attn._\1" if fields["n_kv_heads"] else r".attn.\1"  # keys and values of groups have names of their own
    marked = {
        theirs: ours and re.sub(r"\.attn\.([Wb]_[KV])", mark, ours.replace("{n_ctx}", str(cfg.n_ctx)))
        for theirs, ours in key_map.items()
    }
    lacks = ("b", "w") if kind == "olmo" else ("b",)  # whose norms have no weights
    return plans.Plan(format=f"Hugging Face's {kind}", cfg=cfg, key_map=marked, may_lack=(*lacks, "_b"), doubt=doubt)


_KINDS = ("weight", "bias")


def _stated(material: Material, kind: str, config: Stated, n_layers: int) -> tuple[Settings, str]:
    """The settings of a family as `transformers` reads them, and doubts. Raises `ValueError` if it refuses."""
    if not config.get("rope_parameters"):
        config.asked |= {*_OLDER}
    try:
        usual, done = completed(kind, {}), completed(kind, dict(config), n_layers)
    except ValueError as error:
        plans.refuse(material, [str(error)])
        raise
    if done is None:
        return Settings(config, n_layers, [], partial=True), NO_CODE.format(kind)
    defaults = usual.to_dict()
    known = {name: value for name, value in done.to_dict().items() if name in defaults or name == "seq_length"}
    return Settings(known, n_layers, [], "partial_rotary_factor" in (defaults.get("rope_parameters") or {})), ""


def _text_config(path: Path, config: Stated) -> Stated:
    """The settings of the text part of a model that reads images as well."""
    text = config.get("text_config")
    if not isinstance(text, dict):
        raise ValueError(f"{path}: expected the text part's settings in config.json's text_config, found {text!r:.80}.")
    settings = Stated({**text, **config})
    settings.asked = config.asked
    return settings


def _split(tensors: dict[str, Tensor], layer: str, n_heads: int, n_groups: int, d_head: int) -> None:
    """Split a layer's tensors that are several into views."""
    for theirs, parts in families.SIDE_BY_SIDE.items():
        if (both := tensors.pop(f"{layer}{theirs}.weight", None)) is None:
            continue
        rows = [n_heads * d_head, n_groups * d_head, n_groups * d_head] if len(parts) == 3 else [len(both) // 2] * 2
        if sum(rows) != len(both):
            raise ValueError(f"{layer}{theirs}: expected {sum(rows)} rows, of {len(parts)} parts, found {len(both)}.")
        for part, tensor in zip(parts, both.split(rows), strict=True):
            tensors[f"{layer}{part}.weight"] = tensor
    for theirs, kind in ((theirs, kind) for theirs in families.FUSED for kind in _KINDS):
        name = f"{layer}{theirs}.{kind}"
        if (fused := tensors.pop(name, None)) is None:
            continue
        if n_heads % n_groups or len(fused) != (n_heads + 2 * n_groups) * d_head:
            shape = list(fused.shape)
            raise ValueError(f"{name}: expected queries, keys and values of {n_heads} heads, found {shape}.")
        grouped = fused.unflatten(0, (n_groups, n_heads // n_groups + 2, d_head))
        queries, keys, values = grouped[:, :-2].flatten(0, 1), grouped[:, -2], grouped[:, -1]
        for part, tensor in zip("QKV", (queries, keys, values), strict=True):  # [head, d_head, d_model] each
            tensors[f"{layer}{part}.{kind}"] = tensor


def _share(tensors: dict[str, Tensor], layer: str) -> None:
    """Name the one norm of a layer twice, before its attention and before its MLP."""
    for first, second in families.ALIKE.items():
        for kind in _KINDS:
            if (norm := tensors.get(f"{layer}{first}.{kind}")) is not None:
                tensors.setdefault(f"{layer}{second}.{kind}", norm)
