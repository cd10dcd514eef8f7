"""Paths one at a time: every one of a model's, what it starts from, and what it writes to the final stream."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.paths.frozen import Frozen
from aotlens.paths.path import Path, SourceName, check_heads, mlp_layer


def every_path(frozen: Frozen, split: bool, max_order: int | None = None) -> Iterator[Path]:
    """Every path with at most `max_order` heads, shortest first; with `split`, from each position of its source."""
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
    kept = torch.zeros_like(x)
    kept[position] = x[position]
    return kept


def stream_of(frozen: Frozen, path: Path) -> Float[Tensor, "pos d_model"]:
    """What one path writes to the final stream, before the read-out."""
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
