"""A path's name: where it starts, and which heads it passes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from aotlens.conventions import Head

#: What enters the residual stream: token embeddings (for other models their "input"), learned positions, and biases.
SourceName = Literal["token", "input", "position", "bias"]


@dataclass(frozen=True)
class Path:
    """A source term and the heads that carry it to the output, in increasing layers.

    `source_position` is the position where the source stands, or None for all of them together.
    """

    source: SourceName
    heads: tuple[Head, ...] = ()
    source_position: int | None = None

    @property
    def order(self) -> int:
        """How many heads it passes."""
        return len(self.heads)

    def __str__(self) -> str:
        start = self.source if self.source_position is None else f"{self.source}@{self.source_position}"
        return " → ".join([start, *(f"{layer}.{head}" for layer, head in self.heads), "logits"])


def check_heads(heads: Iterable[Head], n_layers: int, n_heads: int) -> None:
    """Raise `ValueError` for heads that the model does not have, or that are not in increasing layers."""
    listed = list(heads)
    for layer, head in listed:
        if not (0 <= layer < n_layers and 0 <= head < n_heads):
            raise ValueError(
                f"head {layer}.{head}: this model has layers 0 to {n_layers - 1} and heads 0 to {n_heads - 1}."
            )
    for (earlier, _), (later, _) in pairwise(listed):
        if earlier >= later:
            raise ValueError(f"path: expected heads in increasing layers, got layer {earlier} before layer {later}.")
