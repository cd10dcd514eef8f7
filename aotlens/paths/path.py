"""A path's name: where it starts, and which heads it passes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from aotlens.conventions import HasHeads, HeadLike, as_head

#: What enters the residual stream: token embeddings (for other models their "input"), learned positions, and biases.
SourceName = Literal["token", "input", "position", "bias"]


@dataclass(frozen=True)
class Path:
    """A source term and the heads that carry it to the output, in increasing layers.

    `source_position` is the position where the source stands, or None for all of them together.
    """

    source: SourceName
    heads: tuple[HeadLike, ...] = ()
    source_position: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", tuple(map(as_head, self.heads)))

    @property
    def order(self) -> int:
        """How many heads it passes."""
        return len(self.heads)

    def __str__(self) -> str:
        start = self.source if self.source_position is None else f"{self.source}@{self.source_position}"
        return " → ".join([start, *(f"{layer}.{head}" for layer, head in self.heads), "logits"])


def check_heads(heads: Iterable[HeadLike], sizes: HasHeads) -> None:
    """Raise `ValueError` for heads that the model does not have, or that are not in increasing layers."""
    for (earlier, _), (later, _) in pairwise(as_head(head, sizes) for head in heads):
        if earlier >= later:
            raise ValueError(f"path: expected heads in increasing layers, got layer {earlier} before layer {later}.")
