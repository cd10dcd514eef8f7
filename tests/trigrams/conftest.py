"""Small models with everything that could go wrong in them: biases, norms, positions, noise on every weight."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aotlens.models import AttentionOnlyTransformer
from tests.small_models import MakeModel, maker

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
def make() -> MakeModel:
    """`make(**changes)`: a randomised model with some fields changed, and training counts."""
    small = maker(SMALL, dtype=torch.float64, seed=7)

    def make(*args: Any, **changes: Any) -> AttentionOnlyTransformer:
        model = small(*args, **changes)
        model.unigram_counts = torch.randint(0, 50, (model.cfg.d_vocab,), generator=torch.Generator().manual_seed(7))
        model.unigram_counts[3] = 0
        return model

    return make
