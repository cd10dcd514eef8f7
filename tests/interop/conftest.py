"""Small randomised models, and a tokenizer to go with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotlens.data import Tokenizer
from aotlens.models import AttentionOnlyTransformer, ModelConfig

SMALL: dict[str, Any] = {
    "n_layers": 2, "d_model": 12, "n_heads": 3, "d_head": 5, "n_ctx": 8, "d_vocab": 11,
}  # fmt: skip


@pytest.fixture(scope="session")
def make() -> Callable[..., AttentionOnlyTransformer]:
    """`make(**changes)`: the small model with some fields changed, and noise on every parameter."""

    def make(dtype: torch.dtype = torch.float32, **changes: Any) -> AttentionOnlyTransformer:
        tokenizer = changes.pop("tokenizer", None)
        model = AttentionOnlyTransformer(ModelConfig(**{**SMALL, **changes}), tokenizer).to(dtype).eval()
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.4 * torch.randn(parameter.shape, generator=generator)
        return model

    return make


@pytest.fixture(scope="session")
def tokens() -> torch.Tensor:
    return torch.randint(SMALL["d_vocab"], (2, 7), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["the cat sat on the mat, the rat sat on the cat, and that was that " * 3], 270)
