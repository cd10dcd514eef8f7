"""Small models in float64 of every kind, whose every parameter counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.small_models import MakeModel, maker

SMALL: dict[str, Any] = {
    "n_layers": 2,
    "d_model": 7,
    "n_heads": 2,
    "d_head": 3,  # not d_model / n_heads, so that no reshape can confuse them
    "n_ctx": 6,
    "d_vocab": 9,
}

#: A mask that is not causal, different for the two heads.
MASK = [
    [[True, True, False, False, False, True]] + [[j % 2 == i % 2 or j == 0 for j in range(6)] for i in range(1, 6)],
    [[j >= i - 1 for j in range(6)] for i in range(6)],
]

KINDS: dict[str, dict[str, Any]] = {
    "mhsa": {},
    "mssa": {"attention": "mssa"},
    "tied": {"attention": "mssa", "tied_output": True, "step_size": 0.7},
    "thresholded": {"phi": "thresholded_softmax", "threshold": 0.25},
    "thresholded mssa": {"attention": "mssa", "phi": "thresholded_softmax", "threshold": 0.25},
    "linear": {"phi": "linear", "attn_scale": 1.0},
    "fixed": {"phi": "fixed", "fixed_pattern": "given"},
    "learned pattern": {"phi": "fixed", "fixed_pattern": "learned", "attention": "mssa"},
    "bidirectional": {"causal": False},
    "masked": {"attn_mask": MASK},
    "wide heads": {"d_head": 11},
}


#: Models with MLPs of each norm and kind of attention; an MLP's output is a source of its own.
MLPS: dict[str, dict[str, Any]] = {
    "mlps": {"d_mlp": 5},
    "mssa, mlps": {"attention": "mssa", "d_mlp": 5},
    "one layer, mlp": {"n_layers": 1, "d_mlp": 5},
    "three layers, mlps": {"n_layers": 3, "d_mlp": 5},
    "linear, mlps": {"phi": "linear", "attn_scale": 1.0, "d_mlp": 5},
}


@pytest.fixture(scope="session")
def make() -> MakeModel:
    """`make(**changes)`: the small model with some fields changed, and noise on every parameter."""

    small = maker(SMALL, dtype=torch.float64)

    def make(*args: Any, **changes: Any) -> AttentionOnlyTransformer:
        cfg, pattern = ModelConfig(**{**SMALL, **changes}), None
        if cfg.fixed_pattern == "given":
            # Signed, and with rows that do not sum to 1.
            shape = (cfg.n_layers, cfg.n_heads, cfg.n_ctx, cfg.n_ctx)
            pattern = torch.randn(shape, generator=torch.Generator().manual_seed(0)).tril()
        return small(*args, pattern=pattern, **changes).requires_grad_(False)

    return make


@pytest.fixture(scope="session")
def tokens() -> Tensor:
    return torch.tensor([3, 1, 4, 1, 8])
