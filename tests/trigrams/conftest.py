"""Small models with everything that could go wrong in them: biases, norms, positions, noise on every weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotlens.models import AttentionOnlyTransformer, ModelConfig

SMALL: dict[str, Any] = {
    "n_layers": 1,
    "d_model": 12,
    "n_heads": 2,
    "d_head": 5,
    "n_ctx": 10,
    "d_vocab": 23,
    "bias": True,
}


@pytest.fixture(scope="session")
def make() -> Callable[..., AttentionOnlyTransformer]:
    """`make(**changes)`: the small model with some fields changed, noise on every parameter, and training counts."""

    def make(dtype: torch.dtype = torch.float64, **changes: Any) -> AttentionOnlyTransformer:
        model = AttentionOnlyTransformer(ModelConfig(**{**SMALL, **changes})).to(dtype).eval()
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(dtype)
        model.unigram_counts = torch.randint(0, 50, (model.cfg.d_vocab,), generator=generator)
        model.unigram_counts[3] = 0
        return model

    return make
