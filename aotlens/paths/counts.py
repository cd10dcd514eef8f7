"""How many paths there are, counted and not listed."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

from aotlens.conventions import Head
from aotlens.paths.frozen import Frozen


def n_paths(frozen: Frozen, split: bool, through: Head | None = None) -> int:
    """How many paths there are, or how many pass the head `through`.

    A source that is there from layer l on starts (H+1)^(L−l) paths, times the positions where sources are `split`:
    embeddings and biases from layer 0 on, the output of an MLP from the layer after it.
    """
    n_layers = frozen.n_layers
    if through is None:
        counted = sum((frozen.n_heads + 1) ** (n_layers - first) for first in _first_layers(frozen))
    else:
        readable = (first for first in _first_layers(frozen) if first <= through[0])
        counted = sum((frozen.n_heads + 1) ** (n_layers - first - 1) for first in readable)
    return counted * (frozen.n_pos if split else 1)


def n_paths_by_order(frozen: Frozen, split: bool) -> tuple[int, ...]:
    """How many pass k heads, k = 0 … L: of a source that is there from layer l on, C(L−l, k) × H^k."""
    n_layers, each = frozen.n_layers, frozen.n_pos if split else 1
    return tuple(
        each * sum(comb(n_layers - first, k) * frozen.n_heads**k for first in _first_layers(frozen))
        for k in range(n_layers + 1)
    )


def _first_layers(frozen: Frozen) -> Iterator[int]:
    """Of every source, the first layer whose heads can read it; the number of layers where none can."""
    yield from (0 for _ in range(len(frozen.sources) + frozen.has_bias))
    yield from range(1, frozen.n_mlps + 1)
