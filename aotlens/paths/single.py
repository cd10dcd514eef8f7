"""Paths one at a time: every one of a model's, what it starts from and writes, it as an operator, and their number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import comb

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import Head
from aotlens.paths.frozen import Frozen
from aotlens.paths.kronecker import Kronecker, KroneckerSum, kronecker_sum
from aotlens.paths.path import Path, SourceName, check_heads, mlp_layer


def every_path(frozen: Frozen, split: bool, max_order: int | None = None) -> Iterator[Path]:
    """Yield every path with at most `max_order` heads, shortest first; with `split`, from each position of
    its source."""
    last = frozen.n_layers if max_order is None else min(max_order, frozen.n_layers)
    positions: list[int | None] = [*range(frozen.n_pos)] if split else [None]
    for order in range(last + 1):
        for layers in combinations(range(frozen.n_layers), order):
            names = [name for name in frozen.source_names if not layers or _can_read(layers[0], name)]
            for indices in product(range(frozen.n_heads), repeat=order):
                heads = tuple(zip(layers, indices, strict=True))
                yield from (Path(name, heads, position) for name in names for position in positions)


def check_path(frozen: Frozen, path: Path) -> None:
    """Raise `ValueError` for a path that the model does not have."""
    check_heads(path.heads, frozen)
    if path.start not in frozen.source_names:
        raise ValueError(f"path {path}: expected a source among {', '.join(frozen.source_names)}.")
    if path.heads and not _can_read(path.heads[0][0], path.start):
        raise ValueError(
            f"path {path}: expected heads after layer {path.source_layer}; the heads of that layer and before it do "
            "not read what its MLP writes."
        )
    if path.source_position is not None and not 0 <= path.source_position < frozen.n_pos:
        raise ValueError(f"path {path}: expected a source position 0 to {frozen.n_pos - 1}.")


def source_of(frozen: Frozen, name: SourceName, position: int | None = None) -> Float[Tensor, "pos width"]:
    """See `PathExpansion.source`."""
    if name == "bias":
        x = torch.ones(frozen.n_pos, 1, dtype=frozen.R.dtype, device=frozen.R.device)
    elif name in frozen.entering:
        x = frozen.entering[name]
    else:
        raise ValueError(f"source {name!r}: expected one of {', '.join([*frozen.entering, 'bias'])}.")
    if position is None:
        return x
    alone = torch.zeros_like(x)
    alone[position] = x[position]
    return alone


def stream_of(frozen: Frozen, path: Path) -> Float[Tensor, "pos d_model"]:
    """Return the contribution of one path to the final stream, before the read-out."""
    x = source_of(frozen, path.start, path.source_position)
    ones = x
    if path.source == "bias":
        x = ones * frozen.bias_before[path.heads[0][0] if path.heads else frozen.n_layers]
    for index, head in enumerate(path.heads):
        if path.source == "bias" and index == 0:
            v = (x * frozen.inverse_scale[head[0]][:, None]) @ frozen.W_V[head]
            x = frozen.patterns[head] @ (v + ones * frozen.v_bias[head]) @ frozen.W_O[head]
        else:
            x = frozen.head_step(head, x, bias=False)
    return x


def _can_read(layer: int, name: SourceName) -> bool:
    """Whether a source is in the stream that the heads of a layer read."""
    written = mlp_layer(name)
    return written is None or written < layer


def n_paths(frozen: Frozen, split: bool, through: Head | None = None) -> int:
    """Count the paths, or those that pass the head `through`.

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
    """Count the paths that pass k heads, k = 0 … L: of a source that is there from layer l on, C(L−l, k) × H^k."""
    n_layers, each = frozen.n_layers, frozen.n_pos if split else 1
    return tuple(
        each * sum(comb(n_layers - first, k) * frozen.n_heads**k for first in _first_layers(frozen))
        for k in range(n_layers + 1)
    )


def _first_layers(frozen: Frozen) -> Iterator[int]:
    """Yield for every source the first layer whose heads can read it; the number of layers where none can."""
    yield from (0 for _ in range(len(frozen.sources) + frozen.has_bias))
    yield from range(1, frozen.n_mlps + 1)


def path_operator(frozen: Frozen, path: Path) -> Kronecker | KroneckerSum:
    """See `PathExpansion.operator`."""
    rest: list[Kronecker] = [
        Kronecker(frozen.patterns[head] * frozen.inverse_scale[head[0]][None, :], frozen.W_V[head] @ frozen.W_O[head])
        for head in path.heads
    ]
    read = Kronecker(frozen.read, frozen.R)
    if path.source != "bias":
        return _in_turn([*rest, read])
    eye = torch.eye(frozen.n_pos, dtype=frozen.R.dtype, device=frozen.R.device)
    before = path.heads[0][0] if path.heads else frozen.n_layers
    starts = [Kronecker(eye, frozen.bias_before[before][None])]
    if not path.heads:
        return (read @ starts[0]) + Kronecker(frozen.pool, frozen.out_bias[None])
    first = path.heads[0]
    own = Kronecker(frozen.patterns[first], (frozen.v_bias[first] @ frozen.W_O[first])[None])
    whole = kronecker_sum([(rest[0] @ starts[0]).terms[0], own])
    return _in_turn([whole, *rest[1:], read])


def _in_turn(operators: Sequence[Kronecker | KroneckerSum]) -> Kronecker | KroneckerSum:
    """The first, then the second, and so on."""
    done = operators[0]
    for later in operators[1:]:
        done = later @ done
    return done
