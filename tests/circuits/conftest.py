"""Small randomised models in float64: biases and gains start at 0 and 1, and a test with those would miss their use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotlens.models import AttentionOnlyTransformer, ModelConfig

SMALL: dict[str, Any] = {
    "n_layers": 2,
    "d_model": 12,
    "n_heads": 3,
    "d_head": 5,  # not d_model / n_heads, so that no reshape can confuse them
    "n_ctx": 8,
    "d_vocab": 11,
}


@pytest.fixture(scope="session")
def make() -> Callable[..., AttentionOnlyTransformer]:
    """`make(**changes)`: the small model with some fields changed, and noise on every parameter."""

    def make(dtype: torch.dtype = torch.float64, **changes: Any) -> AttentionOnlyTransformer:
        model = AttentionOnlyTransformer(ModelConfig(**{**SMALL, **changes})).to(dtype).eval()
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(dtype)
        return model

    return make
