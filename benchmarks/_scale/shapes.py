"""The sizes that costs are measured against, and untrained models that have them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from aotlens.models import AttentionOnlyTransformer, ModelConfig


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a model and of what it reads; a head has `d_head` dimensions everywhere."""

    vocabulary: int = 2048
    """Tokens of the vocabulary (V)."""
    layers: int = 4
    """Layers (L)."""
    heads: int = 8
    """Heads in a layer (H)."""
    width: int = 512
    """d_model (D), which doesn't follow the number of heads here."""
    tokens: int = 128
    """Positions of a prompt, or of each window of a text (n)."""
    d_head: int = 64

    def __str__(self) -> str:
        return f"V{self.vocabulary} L{self.layers} H{self.heads} D{self.width} n{self.tokens} d{self.d_head}"

    def on(self, axis: str, value: int) -> Shape:
        """Return the same shape with another size on one axis."""
        return replace(self, **{axis: value})

    @property
    def n_weights(self) -> int:
        """Count embedding, unembedding and four matrices a head: the parameters but for positions and norms."""
        return self.width * (2 * self.vocabulary + 4 * self.layers * self.heads * self.d_head)


#: Sizes of each axis, in geometric steps (the last ones are where real models end).
AXES: dict[str, tuple[int, ...]] = {
    "vocabulary": tuple(2**i for i in range(10, 18)),
    "layers": (1, 2, 4, 8, 16, 24),
    "heads": (1, 2, 4, 8, 16, 32, 64, 128, 180),
    "width": tuple(2**i for i in range(7, 13)),
    "tokens": tuple(2**i for i in range(4, 11)),
}
#: The axes of `--quick`: does it run, not how fast.
QUICK_AXES: dict[str, tuple[int, ...]] = {
    "vocabulary": (64, 128, 256, 512, 1024),
    "layers": (1, 2, 3, 4, 6),
    "heads": (1, 2, 4, 6, 8),
    "width": (32, 64, 96, 128, 256),
    "tokens": (8, 16, 32, 48, 64),
}
TINY = Shape(vocabulary=64, layers=2, heads=2, width=32, tokens=16, d_head=8)


def untrained(shape: Shape, device: str) -> AttentionOnlyTransformer:
    """Return a model of this shape with initial weights, and Zipf's counts of tokens."""
    cfg = ModelConfig(
        n_layers=shape.layers, d_model=shape.width, n_heads=shape.heads, d_head=shape.d_head,
        d_vocab=shape.vocabulary, n_ctx=shape.tokens,
    )  # fmt: skip
    model = AttentionOnlyTransformer(cfg).eval().requires_grad_(False).to(device)
    model.unigram_counts = (10**7 / torch.arange(1, shape.vocabulary + 1)).long().to(device)
    return model
