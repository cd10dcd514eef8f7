"""Small models whose heads are known, and windows of ids."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, ModelConfig

D_VOCAB = 60


def build(*, pattern: Tensor | None = None, seed: int = 0, **fields: Any) -> AttentionOnlyTransformer:
    """Random weights of some size, so that norms, biases and heads matter; float64."""
    sizes = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_head": 4, "n_ctx": 12, "d_vocab": D_VOCAB, "seed": seed}
    model = AttentionOnlyTransformer(ModelConfig(**{**sizes, **fields}), pattern=pattern).double()
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model.eval().requires_grad_(False)


def random_windows(n: int, length: int = 12, d_vocab: int = D_VOCAB, seed: int = 0) -> Tensor:
    """The start token 0, then independent uniform tokens."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, d_vocab, (n, length), generator=generator)
    ids[:, 0] = 0
    return ids


@pytest.fixture
def model() -> AttentionOnlyTransformer:
    return build(attention="mssa", bias=True, positions="qk")


@pytest.fixture
def windows() -> tuple[Tensor, Tensor, Tensor]:
    """Training, validation and held-out."""
    return random_windows(200), random_windows(20, seed=1), random_windows(40, seed=2)


#: Seconds, not minutes.
FAST: dict[str, Any] = {"train_tokens": 2400, "batch_size": 100, "wide": None, "neighbours": 0, "evaluations": 5}
