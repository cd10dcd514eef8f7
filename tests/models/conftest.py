"""Small models whose every parameter counts: random weights, biases and norm gains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from aotlens.data import Tokenizer
from aotlens.models import AttentionOnlyTransformer, ModelConfig

SMALL: dict[str, Any] = {
    "n_layers": 2,
    "d_model": 12,
    "n_heads": 3,
    "d_head": 5,  # not d_model / n_heads, so that no reshape can confuse them
    "n_ctx": 8,
    "d_vocab": 11,
}

MakeModel = Callable[..., AttentionOnlyTransformer]


def randomise(model: AttentionOnlyTransformer, seed: int = 0) -> AttentionOnlyTransformer:
    """Biases and gains start at 0 and 1: a test with those would miss an error in their use."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(0.4 * noise + (1.0 if name.endswith(".w") else 0.0))
    return model


@pytest.fixture(scope="session")
def make() -> MakeModel:
    """`make(**changes)`: a randomised model of the small configuration with some fields changed."""

    def make(dtype: torch.dtype = torch.float32, **changes: Any) -> AttentionOnlyTransformer:
        pattern = changes.pop("pattern", None)
        tokenizer = changes.pop("tokenizer", None)
        cfg = ModelConfig(**{**SMALL, **changes})
        return randomise(AttentionOnlyTransformer(cfg, tokenizer, pattern=pattern).to(dtype)).eval()

    return make


@pytest.fixture(scope="session")
def tokens() -> torch.Tensor:
    return torch.randint(SMALL["d_vocab"], (2, 7), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["the cat sat on the mat, the rat sat on the cat, and that was that " * 3], 270)
