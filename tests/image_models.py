"""Small models of images, and heads whose attention is planted, for the suites that need one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, hook_names
from tests.small_models import maker

#: 2 × 2 colours a patch, 3 × 3 patches and [CLS]: rows and columns of nothing are the same number.
PATCHES: dict[str, Any] = {
    "n_layers": 3,
    "d_model": 12,
    "n_heads": 2,
    "d_head": 5,
    "n_ctx": 10,
    "read_in": "patches",
    "image_size": 6,
    "patch_size": 2,
    "n_channels": 3,
    "class_token": True,
    "read_out": "classes",
    "d_out": 4,
    "causal": False,
    "bias": True,
}
MEAN_POOLED: dict[str, Any] = {"class_token": False, "n_ctx": 9, "pooling": "mean"}

make = maker(PATCHES)


def random_images(n_images: int = 3, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Images for `PATCHES`, of noise."""
    return torch.randn(n_images, 3, 6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def plant(
    model: AttentionOnlyTransformer, pattern_of: Callable[[int, int, Tensor], Tensor], layer: int = 0
) -> AttentionOnlyTransformer:
    """`model`, in whose `layer` every pattern is `pattern_of(first, n, pattern)` for the n images from the number
    `first` on; images are counted from 0 again after `model.seen = 0`."""
    model.seen = 0  # type: ignore[assignment]

    def put(pattern: Tensor, hook: object) -> Tensor:
        first, n_images = int(model.seen), len(pattern)  # type: ignore[arg-type]
        model.seen = first + n_images  # type: ignore[assignment]
        return pattern_of(first, n_images, pattern)

    model.add_hook(hook_names.attn(layer, hook_names.PATTERN), put)
    return model
