"""Paths one at a time: what each starts from and writes, as an operator, and how many there are; every path to one
logit.

Where there are few enough, two halves meet in the middle. A path is a lower part, from a source to the middle layer,
and an upper part, from there to the logit. The lower parts are streams (forwards), the upper parts gradients
(backwards); every pair's contribution is one inner product, so all (H+1)^L head sequences take 2·(H+1)^(L/2) passes
through half of the layers and one matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from math import comb
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aotlens.conventions import Head, head_name, require_whole
from aotlens.paths.frozen import Frozen, head_gradients, root_gradient, stream_gradients
from aotlens.paths.kronecker import Kronecker, KroneckerSum, kronecker_sum
from aotlens.paths.path import Path, SourceName, check_heads, mlp_layer
from aotlens.paths.target import direction
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd


def every_path(frozen: Frozen, split: bool, max_order: int | None = None) -> Iterator[Path]:
    """Yield every path with at most `max_order` heads, shortest first; with `split`, for each source position."""
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
    """Count the paths, or those through a head: (H+1)^(L−l) of a source that layer l reads first, times the positions
    with `split`."""
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


@dataclass(frozen=True, kw_only=True, eq=False)
class AllPaths(Result):
    """Each path's contribution to one logit, in logits: `values[source, i]` for head sequence i.

    The digits of i in base n_heads + 1, layer 0 first, are 0 where the path skips the layer and 1 + head elsewhere.
    There is no path from the output of an MLP through a head of its layer or below: these are 0.
    """

    names: tuple[SourceName, ...]
    values: Float[Tensor, "source sequence"]
    n_layers: int
    n_heads: int

    @property
    def headline(self) -> str:
        return f"{int(self.exists.sum()):,} paths, together {float(self.values.sum()):+.3f} logits"

    @cached_property
    def exists(self) -> Bool[Tensor, "source sequence"]:
        """Whether there is such a path."""
        first = torch.tensor([0 if (layer := mlp_layer(name)) is None else layer + 1 for name in self.names])
        n_starting = (self.n_heads + 1) ** (self.n_layers - first)
        return (torch.arange(self.values.shape[1]) < n_starting[:, None]).to(self.values.device)

    def heads(self, sequence: int) -> tuple[Head, ...]:
        """Return the heads of sequence i."""
        heads: list[Head] = []
        for layer in reversed(range(self.n_layers)):
            sequence, digit = divmod(sequence, self.n_heads + 1)
            if digit:
                heads.append((layer, digit - 1))
        return tuple(reversed(heads))

    def index(self, heads: tuple[Head, ...]) -> int:
        """Return the number of a head sequence."""
        digits = {layer: head + 1 for layer, head in heads}
        number = 0
        for layer in range(self.n_layers):
            number = number * (self.n_heads + 1) + digits.get(layer, 0)
        return number

    def path(self, source: int, sequence: int) -> Path:
        """Return the path of an entry of `values`."""
        return Path(self.names[source], self.heads(sequence))

    def _table(self) -> pd.DataFrame:
        return self.to_frame(12)  # there may be millions

    def to_frame(self, k: int | None = None) -> pd.DataFrame:
        """Return the k largest in size (or all): source, heads, order, logits. Raises `ValueError` for k below 1."""
        if k is not None:
            require_whole("k", k, 1)
        flat = self.values.flatten().cpu()
        there = self.exists.flatten().cpu().nonzero()[:, 0]
        largest = flat[there].abs().topk(len(there) if k is None else min(k, len(there))).indices
        best = there[largest].tolist()
        paths = [self.path(*divmod(i, self.values.shape[1])) for i in best]
        return data_frame(
            {
                "source": [path.source for path in paths],
                "heads": [" ".join(map(head_name, path.heads)) for path in paths],
                "order": [path.order for path in paths],
                "logits": flat[best].numpy(),
            }
        )


def all_paths(frozen: Frozen, position: int, target: int | tuple[int, int], max_paths: int) -> AllPaths:
    """See `PathExpansion.all_paths`. Memory: O((H+1)^⌈L/2⌉ · pos · d_model)."""
    n_sequences = (frozen.n_heads + 1) ** frozen.n_layers
    if n_sequences > max_paths:
        raise ValueError(
            f"all_paths: {n_sequences:,} head sequences, above max_paths={max_paths:,}; use top(k, …), by_order or "
            "by_head, or raise max_paths."
        )
    middle = frozen.n_layers // 2
    to = direction(frozen, target)
    upper, entering, entering_mlps = _upper(frozen, middle, root_gradient(frozen, position, to.column))
    rows = [torch.einsum("upd,spd->su", upper, _lower(frozen, 0, middle, x)).flatten() for x in frozen.sources.values()]
    for layer in range(frozen.n_mlps):
        through_mlp = entering_mlps.get(layer)
        if through_mlp is None:
            assert frozen.mlps is not None
            streams = _lower(frozen, layer + 1, middle, frozen.mlps[layer])
            through_mlp = torch.einsum("upd,spd->su", upper, streams).flatten()
        # Heads above the MLP are the last digits, so its paths are the first numbers.
        rows.append(torch.cat([through_mlp, through_mlp.new_zeros(n_sequences - len(through_mlp))]))
    if frozen.has_bias:
        streams = _lower(frozen, 0, middle, torch.zeros_like(frozen.embedded), bias=True)
        below = torch.einsum("upd,spd->su", upper, streams)
        below[0] += entering  # biases that enter above the middle
        below[0, 0] += to.bias
        rows.append(below.flatten())
    values = torch.stack(rows)
    return AllPaths(names=frozen.source_names, values=values, n_layers=frozen.n_layers, n_heads=frozen.n_heads)


def _lower(frozen: Frozen, first: int, middle: int, x: Tensor, *, bias: bool = False) -> Tensor:
    """Streams `[sequence, pos, d_model]` at the middle, from layer `first` on; with `bias`, of the biases that enter
    below."""
    streams = x[None]
    for layer in range(first, middle):
        v = frozen.values(layer, streams)
        if bias:
            v[0] += frozen.v_bias[layer][:, None]
        through = torch.einsum("shpk,hkd->shpd", frozen.moved(layer, v), frozen.W_O[layer])
        streams = torch.cat([streams[:, None], through], dim=1).flatten(0, 1)
        if bias:
            streams[0] += frozen.b_O[layer]
    return streams


def _upper(frozen: Frozen, middle: int, root: Tensor) -> tuple[Tensor, Tensor, dict[int, Tensor]]:
    """Gradients `[sequence, pos, d_model]` at the middle, and what biases and, by layer, MLPs above it add to each
    sequence."""
    g, mlps = root[None], {}
    entering = g.new_zeros(1)  # for each sequence above the layer, what biases that enter above it add
    for layer in reversed(range(middle, frozen.n_layers)):
        if frozen.mlps is not None:
            mlps[layer] = torch.einsum("upd,pd->u", g, frozen.mlps[layer])
        entering = entering + g.sum(1) @ frozen.b_O[layer]
        u = head_gradients(frozen, layer, g)
        own = torch.einsum("uhpk,hk->hu", u, frozen.v_bias[layer])
        # A layer below is a digit before: its index is the slower one.
        g = torch.cat([g[None], stream_gradients(frozen, layer, u).transpose(0, 1)]).flatten(0, 1)
        entering = torch.cat([entering[None], own]).flatten()
    return g, entering, mlps
