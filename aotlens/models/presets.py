"""Every named model of *aot* (Attention-Only Transformers via Unrolled Subspace Denoising).

    presets.NAMES                        the names, from "aot-mssa-l-base" to "vit-s"
    presets.config(name)                 a ModelConfig
    presets.build(name)                  the model, on the meta device by default
    presets.count_parameters(name)       its size as the paper's table counts it

What the paper prints is kept: layers, width, heads, operator, MLP, context, and parameter counts. What it
leaves open is filled in as below.

Language models (Table 4) follow nanoGPT, on which the paper builds: 50,304 tokens (GPT-2's, rounded up to a
multiple of 64), 1,024 positions, one matrix for reading tokens in and out, no biases. Their MSSA has a
learned W_O beside the shared U: tied to U, Base would have 76.7M parameters instead of the printed 102M.

In-context models (Table 5) follow Garg et al. (2022): 101 pairs (x, y) give 202 positions, x ∈ R²⁰ and y
padded to 20 are read in by a matrix, a matrix reads one number out, and the rest is Hugging Face's GPT-2 with
biases.

Of the vision models (Tables 1 and 2) the paper prints only parameter counts; images are 224², patches 16²,
and 1,000 classes are read from [CLS]. ViT is ViT-S/16, the 22M one. AoT-MHSA-V is ViT-S/16 without MLPs and
twice as deep, which gives its 15M (and is how Table 4's AoT-MHSA-L relates to GPT-2). Of AoT-MSSA-V nothing
but 22M is known; 40 layers of width 512 are our choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from aotlens.conventions import require_choice
from aotlens.models import count
from aotlens.models.config import ModelConfig
from aotlens.models.device import resolve_device
from aotlens.models.transformer import AttentionOnlyTransformer


def _shape(attention: str, n_layers: int, d_model: int, n_heads: int, mlp: bool = False) -> dict[str, Any]:
    return {
        "attention": attention,
        "n_layers": n_layers,
        "d_model": d_model,
        "n_heads": n_heads,
        "d_head": d_model // n_heads,
        "d_mlp": 4 * d_model if mlp else None,
    }


@dataclass(frozen=True)
class _Family:
    """The settings that a family of models shares, and the convention by which its table counts."""

    shared: dict[str, Any]
    convention: count.Convention


_LANGUAGE = _Family({"d_vocab": 50_304, "n_ctx": 1024, "tied_embeddings": True, "init_std": 0.02}, convention="table_4")
_IN_CONTEXT = _Family(
    {
        "n_ctx": 202,
        "read_in": "vectors",
        "d_in": 20,
        "read_out": "vectors",
        "d_out": 1,
        "bias": True,
        "act_fn": "gelu_new",
        "init_std": 0.02,
    },
    convention="table_5",
)
_VISION = _Family(
    {
        "n_ctx": (224 // 16) ** 2 + 1,
        "read_in": "patches",
        "image_size": 224,
        "patch_size": 16,
        "n_channels": 3,
        "class_token": True,
        "read_out": "classes",
        "d_out": 1000,
        "causal": False,
        "bias": True,
        "norm_eps": 1e-6,
        "init_std": 0.02,
    },
    convention="all",
)

_PRESETS: dict[str, tuple[_Family, dict[str, Any]]] = {
    "aot-mssa-l-base": (_LANGUAGE, _shape("mssa", n_layers=24, d_model=1024, n_heads=16)),
    "aot-mssa-l-medium": (_LANGUAGE, _shape("mssa", n_layers=36, d_model=1280, n_heads=20)),
    "aot-mhsa-l-base": (_LANGUAGE, _shape("mhsa", n_layers=24, d_model=896, n_heads=14)),
    "gpt2-base": (_LANGUAGE, _shape("mhsa", n_layers=12, d_model=768, n_heads=12, mlp=True)),
    "icl-aot-mssa-l": (_IN_CONTEXT, _shape("mssa", n_layers=32, d_model=128, n_heads=8)),
    "icl-aot-mhsa-l": (_IN_CONTEXT, _shape("mhsa", n_layers=32, d_model=128, n_heads=8)),
    "icl-transformer": (_IN_CONTEXT, _shape("mhsa", n_layers=16, d_model=128, n_heads=8, mlp=True)),
    "aot-mssa-v": (_VISION, _shape("mssa", n_layers=40, d_model=512, n_heads=8)),
    "aot-mhsa-v": (_VISION, _shape("mhsa", n_layers=24, d_model=384, n_heads=6)),
    "vit-s": (_VISION, _shape("mhsa", n_layers=12, d_model=384, n_heads=6, mlp=True)),
}

NAMES = tuple(_PRESETS)


def config(name: str) -> ModelConfig:
    """Return the configuration of a named model. Raises `ValueError` listing the names for any other."""
    family, shape = _preset(name)
    return ModelConfig.from_dict({**shape, **family.shared})


def convention(name: str) -> count.Convention:
    """Return the convention by which the paper's table counts this model (`aotlens.models.count`)."""
    family, _ = _preset(name)
    return family.convention


def count_parameters(name: str) -> int:
    """Return the number of parameters of a named model, as the paper's table counts them."""
    return count.count_parameters(config(name), convention(name))


def build(name: str, device: str | torch.device = "meta") -> AttentionOnlyTransformer:
    """Return the named model: shapes only on the meta device, with initial weights elsewhere."""
    target = resolve_device(device)
    if target.type == "meta":
        return count.build_on_meta(config(name))
    return AttentionOnlyTransformer(config(name)).to(target)


def _preset(name: str) -> tuple[_Family, dict[str, Any]]:
    require_choice("preset", name, _PRESETS)
    return _PRESETS[name]
