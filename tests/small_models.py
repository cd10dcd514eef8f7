"""Small models whose every parameter counts, for the suites that need one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from aotlens.data import Tokenizer
from aotlens.models import AttentionOnlyTransformer, ModelConfig

MakeModel = Callable[..., AttentionOnlyTransformer]

SMALL: dict[str, Any] = {
    "n_layers": 2,
    "d_model": 12,
    "n_heads": 3,
    "d_head": 5,  # not d_model / n_heads, so that no reshape can confuse them
    "n_ctx": 8,
    "d_vocab": 11,
}


def randomise(
    model: AttentionOnlyTransformer, generator: torch.Generator | None = None, *, scale: float = 0.4
) -> AttentionOnlyTransformer:
    """The model with noise on every parameter, the same in every precision.

    Biases and gains start at 0 and 1: a test with those would miss an error in their use.
    """
    generator = generator or torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter += scale * noise.to(parameter.dtype)
    return model


def maker(config: Mapping[str, Any] = SMALL, *, dtype: torch.dtype = torch.float32, seed: int = 0) -> MakeModel:
    """`make(**changes)`: a randomised model of `config` with some fields changed, ready to run.

    `make` also takes a `dtype`, a `tokenizer` and a `pattern`.
    """
    default = dtype

    def make(
        dtype: torch.dtype = default,
        *,
        tokenizer: Tokenizer | None = None,
        pattern: Tensor | None = None,
        **changes: Any,
    ) -> AttentionOnlyTransformer:
        cfg = ModelConfig(**{**config, **changes})
        model = AttentionOnlyTransformer(cfg, tokenizer, pattern=pattern).to(dtype)
        return randomise(model, torch.Generator().manual_seed(seed)).eval()

    return make


def small_tokens() -> Tensor:
    """Two sequences of 7 for `SMALL`."""
    return torch.randint(SMALL["d_vocab"], (2, 7), generator=torch.Generator().manual_seed(1))


def small_tokenizer() -> Tokenizer:
    """Of 270 tokens."""
    return Tokenizer.train(["the cat sat on the mat, the rat sat on the cat, and that was that " * 3], 270)
