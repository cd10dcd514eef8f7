"""A path as an operator: one Kronecker product, or for biases a sum of two (*structures*, Proposition 22)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aotlens.paths.frozen import Frozen
from aotlens.paths.kronecker import Kronecker, KroneckerSum, kronecker_sum
from aotlens.paths.path import Path


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
