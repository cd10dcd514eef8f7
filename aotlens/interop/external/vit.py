"""Vision transformers of Hugging Face (ViT and DeiT, `…ForImageClassification`): pre-norm, MLPs, classes from [CLS].

Their patch embedding is a convolution whose patches do not overlap: as a matrix `[d_model, channel · row · column]`, it
is ours transposed. Image and patch size come from the shapes of the positions and of that convolution;
`preprocessor_config.json` says how pixels are normalised, and `id2label` what the classes are called.
"""

from __future__ import annotations

import math
import warnings

from aotlens.data.images import ImageProcessor
from aotlens.interop.external import plans
from aotlens.interop.external.material import Material, read_json
from aotlens.interop.external.plans import Stated

FORMAT = "Hugging Face's ViT"
#: The number that `ViTImageProcessor` subtracts, and divides by, where nothing else is said: pixels from −1 to 1.
_MIDDLE = 0.5
#: Tensors by which the format is recognised.
NAMES = ("embeddings.patch_embeddings.projection.weight", "encoder.layer.0.attention.attention.query.weight")
_WHOLE: plans.Names = {
    "embeddings.cls_token": "embed.cls",
    "embeddings.distillation_token": "embed.distillation",
    "embeddings.patch_embeddings.projection.weight": "embed.W.T",
    "embeddings.patch_embeddings.projection.bias": "embed.b",
    "embeddings.position_embeddings": "pos_embed.W_pos",
    "embeddings.mask_token": None,  # of the training of patches that are left out
    **plans.norms({"layernorm": "ln_final"}),
    **plans.linears({"classifier": "unembed.U"}),
}
_LAYER: plans.Names = {
    **plans.norms({"layernorm_before": "ln1", "layernorm_after": "ln2"}),
    **plans.linears({f"attention.attention.{each}": f"attn.{each[0].upper()}" for each in ("query", "key", "value")}),
    **plans.linears({"attention.output.dense": "attn.O", "intermediate.dense": "mlp.in", "output.dense": "mlp.out"}),
}


def plan(material: Material, config: Stated, is_described: bool) -> plans.Plan:
    """Plan the model from the names and shapes, `config` in the words of Hugging Face and `preprocessor_config.json`.

    `is_described`: a configuration came with the weights, so that what it does not mention has its library's default.
    Raises `ValueError` for what neither tells, and for what is outside our family.
    """
    tensors, path = material.tensors, material.path
    d_model, channels, rows, columns = material.shape(NAMES[0], 4)
    act_fn = config.get("hidden_act", "gelu" if is_described else None)
    n_heads = config.get("num_attention_heads")
    meanings = {"num_attention_heads": "heads of each layer", "hidden_act": f"one of {', '.join(plans.ACTIVATIONS)}"}
    plans.require_stated(path, {"num_attention_heads": n_heads, "hidden_act": act_fn}, meanings)
    positions, inner = "embeddings.position_embeddings", "encoder.layer.0.intermediate.dense.weight"
    lacking = [name for name in ("classifier.weight", positions, inner) if name not in tensors]
    distilled = "embeddings.distillation_token" in tensors
    n_patches = 0 if positions in lacking else material.shape(positions, 3)[1] - 1 - distilled
    side = math.isqrt(max(n_patches, 0))
    teacher, kind = "cls_classifier.weight" in tensors, config.get("model_type", "vit")
    plans.refuse(material, {
        **{f"no {name} (a ViTForImageClassification has it)": not teacher for name in lacking},
        "two read-outs, whose mean its classes are (DeiTForImageClassificationWithTeacher)": teacher,
        f"model_type={kind!r}": kind != ("deit" if distilled else "vit"),
        f"{n_patches} patches of {rows} × {columns} pixels, which are no square":
            rows != columns or (not lacking and side * side != n_patches),
        f"hidden_act={act_fn!r}": str(act_fn) not in plans.ACTIVATIONS,
        f"num_attention_heads={n_heads} for hidden_size={d_model}": d_model % n_heads,
    })  # fmt: skip
    n_classes = material.shape("classifier.weight", 2)[0]
    named, classes = config.get("id2label"), tuple(map(str, range(n_classes)))
    if isinstance(named, dict) and set(named) == set(classes):  # else their numbers
        classes = tuple(str(named[number])[:200] for number in classes)
    cfg = plans.build_config(
        path,
        n_layers=plans.n_layers(material, "encoder.layer.", config),
        d_model=d_model,
        n_heads=n_heads,
        d_head=d_model // n_heads,
        n_ctx=n_patches + 1 + distilled,
        d_mlp=material.shape(inner, 2)[0],
        act_fn=plans.ACTIVATIONS[str(act_fn)],
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
    return plans.Plan(
        format=FORMAT,
        cfg=cfg,
        key_map={**_WHOLE, **plans.in_layers("encoder.layer.", _LAYER)},
        image_processor=_processor(material, channels, classes),
    )


def _processor(material: Material, channels: int, classes: tuple[str, ...]) -> ImageProcessor | None:
    """The normalisation of pixels from the file next to the weights; None, with a warning, if that is invalid."""
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
