"""Vision transformers of Hugging Face (ViT and DeiT, `…ForImageClassification`): pre-norm, MLPs, classes from [CLS].

Their patch embedding is a convolution whose patches do not overlap: as a matrix `[d_model, channel · row · column]`, it
is ours transposed. Image and patch size come from the shapes of the positions and of that convolution;
`preprocessor_config.json` says how pixels are normalised, and `id2label` what the classes are called.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

from aotlens.data.images import ImageProcessor
from aotlens.interop.external.material import Material, read_json
from aotlens.interop.external.plan import ACTIVATIONS, Plan, asked, build_config, n_layers, refuse, require_sizes
from aotlens.interop.external.settings import Stated

FORMAT = "Hugging Face's ViT"
#: The number that `ViTImageProcessor` subtracts, and divides by, where nothing else is said: pixels from −1 to 1.
_MIDDLE = 0.5
_NAMES = ("embeddings.patch_embeddings.projection.weight", "encoder.layer.0.attention.attention.query.weight")
_WHOLE = {
    "embeddings.cls_token": "embed.cls",
    "embeddings.distillation_token": "embed.distillation",
    "embeddings.patch_embeddings.projection.weight": "embed.W.T",
    "embeddings.patch_embeddings.projection.bias": "embed.b",
    "embeddings.position_embeddings": "pos_embed.W_pos",
    "embeddings.mask_token": None,  # of the training of patches that are left out
    "layernorm.weight": "ln_final.w",
    "layernorm.bias": "ln_final.b",
}
_NORMS = {"layernorm_before": "ln1", "layernorm_after": "ln2"}
_MATRICES = {
    "attention.attention.query": ("attn", "Q"),
    "attention.attention.key": ("attn", "K"),
    "attention.attention.value": ("attn", "V"),
    "attention.output.dense": ("attn", "O"),
    "intermediate.dense": ("mlp", "in"),
    "output.dense": ("mlp", "out"),
}


def matches(material: Material) -> Material | None:
    """Return the tensors by the names of a ViT; None if they have others."""
    return material.under(*_NAMES)


def plan(material: Material, config: Stated, is_described: bool) -> Plan:
    """Plan the model from the names and shapes, `config` in the words of Hugging Face and `preprocessor_config.json`.

    `is_described`: a configuration came with the weights, so that what it does not mention has its library's default.
    Raises `ValueError` for what neither tells, and for what is outside our family.
    """
    tensors, path = material.tensors, material.path
    require_sizes(path, config, ("num_attention_heads",))
    d_model, channels, rows, columns = material.shape(_NAMES[0], 4)
    act_fn = config.get("hidden_act", "gelu" if is_described else None)
    unsaid = {}
    if config.get("num_attention_heads") is None:
        unsaid["num_attention_heads"] = "heads of each layer"
    if act_fn is None:
        unsaid["hidden_act"] = f"one of {', '.join(ACTIVATIONS)}"
    if unsaid:
        raise asked(path, unsaid)
    n_heads = config["num_attention_heads"]
    positions, inner = "embeddings.position_embeddings", "encoder.layer.0.intermediate.dense.weight"
    lacking = [name for name in ("classifier.weight", positions, inner) if name not in tensors]
    distilled = "embeddings.distillation_token" in tensors
    n_patches = 0 if positions in lacking else material.shape(positions, 3)[1] - 1 - distilled
    side = math.isqrt(max(n_patches, 0))
    problems = [f"no {name} (a ViTForImageClassification has it)" for name in lacking]
    if "cls_classifier.weight" in tensors:
        problems = ["two read-outs, whose mean its classes are (DeiTForImageClassificationWithTeacher)"]
    if config.get("model_type", "vit") != ("deit" if distilled else "vit"):
        problems.append(f"model_type={config.get('model_type', 'vit')!r}")
    if rows != columns or (not lacking and side * side != n_patches):
        problems.append(f"{n_patches} patches of {rows} × {columns} pixels, which are no square")
    if str(act_fn) not in ACTIVATIONS:
        problems.append(f"hidden_act={act_fn!r}")
    if d_model % n_heads:
        problems.append(f"num_attention_heads={n_heads} for hidden_size={d_model}")
    refuse(material, problems)
    n_classes = material.shape("classifier.weight", 2)[0]
    cfg = build_config(
        path,
        n_layers=n_layers(material, "encoder.layer."),
        d_model=d_model,
        n_heads=n_heads,
        d_head=d_model // n_heads,
        n_ctx=n_patches + 1 + distilled,
        d_mlp=material.shape(inner, 2)[0],
        act_fn=ACTIVATIONS[str(act_fn)],
        norm_eps=config.get("layer_norm_eps", 1e-12),
        causal=False,
        bias=True,
        read_in="patches",
        image_size=side * rows,
        patch_size=rows,
        n_channels=channels,
        class_token=True,
        distillation_token=distilled,
        read_out="classes",
        d_out=n_classes,
    )
    return Plan(
        format=FORMAT,
        cfg=cfg,
        key_map=_key_map(),
        image_processor=_processor(material, channels, _names(config.get("id2label"), n_classes)),
    )


def _key_map() -> dict[str, str | None]:
    names: dict[str, str | None] = {**_WHOLE}
    layer = "encoder.layer.*."
    for theirs, ours in _NORMS.items():
        names |= {f"{layer}{theirs}.weight": f"blocks.*.{ours}.w", f"{layer}{theirs}.bias": f"blocks.*.{ours}.b"}
    for theirs, (module, which) in _MATRICES.items():
        names[f"{layer}{theirs}.weight"] = f"blocks.*.{module}.W_{which}.T"
        names[f"{layer}{theirs}.bias"] = f"blocks.*.{module}.b_{which}"
    return {**names, "classifier.weight": "unembed.W_U.T", "classifier.bias": "unembed.b_U"}


def _names(id2label: Any, n_classes: int) -> tuple[str, ...]:
    """Return the names of the classes; their numbers where the configuration names others."""
    numbers = tuple(map(str, range(n_classes)))
    if not isinstance(id2label, dict) or set(id2label) != set(numbers):
        return numbers
    return tuple(str(id2label[number])[:200] for number in numbers)


def _processor(material: Material, channels: int, classes: tuple[str, ...]) -> ImageProcessor | None:
    """The normalisation of pixels that stands beside the weights; None, with a warning, for one that is no such."""
    path = material.folder / "preprocessor_config.json"
    settings = read_json(path) if path.is_file() else {}
    if not settings:
        warnings.warn(
            f"{material.path} comes without preprocessor_config.json: pixels from 0 to 1 are read less {_MIDDLE} and "
            f"divided by {_MIDDLE}, as ViTImageProcessor does where nothing is said.",
            stacklevel=5,
        )
    mean, deviation = settings.get("image_mean", _MIDDLE), settings.get("image_std", _MIDDLE)
    if settings.get("do_normalize") is False:
        mean, deviation = 0.0, 1.0
    values = {
        name: value if isinstance(value, list) else [value] * channels
        for name, value in (("mean", mean), ("deviation", deviation))
    }
    rescaled = math.isclose(float(settings.get("rescale_factor") or 1 / 255), 1 / 255, rel_tol=1e-6)
    try:
        if settings.get("do_rescale") is False or not rescaled or len(values["mean"]) != channels:
            raise ValueError(f"it does not map pixels of {channels} channels from 0 to 1 before it normalises them")
        return ImageProcessor.from_dict({**values, "classes": list(classes), "data": ""})
    except ValueError as error:
        warnings.warn(f"the model comes without an image processor: {path}: {error}", stacklevel=5)
        return None
