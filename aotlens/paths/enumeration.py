"""Every path to one logit, where there are few enough: two halves that meet in the middle.

A path is a lower part, from a source to the middle layer, and an upper part, from there to the logit. The lower parts
are streams (forwards), the upper parts gradients (backwards); every pair's contribution is one inner product, so all
(H+1)^L head sequences take 2·(H+1)^(L/2) passes through half of the layers and one matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aotlens.conventions import Head, head_name
from aotlens.paths.frozen import Frozen
from aotlens.paths.path import Path, SourceName, mlp_layer
from aotlens.paths.streams import head_gradients, root_gradient, stream_gradients
from aotlens.paths.target import direction
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


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
        import pandas as pd

        if k is not None and k < 1:
            raise ValueError(f"AllPaths.to_frame: expected k ≥ 1, or None for all, got {k}.")
        flat = self.values.flatten().cpu()
        there = self.exists.flatten().cpu().nonzero()[:, 0]
        largest = flat[there].abs().topk(len(there) if k is None else min(k, len(there))).indices
        best = there[largest].tolist()
        paths = [self.path(*divmod(i, self.values.shape[1])) for i in best]
        return pd.DataFrame(
            {
                "source": [path.source for path in paths],
                "heads": [" ".join(map(head_name, path.heads)) for path in paths],
                "order": [path.order for path in paths],
                "logits": flat[best].numpy(),
            }
        )


def all_paths(frozen: Frozen, position: int, target: int | tuple[int, int], max_paths: int) -> AllPaths:
    """Compute all paths in O((H+1)^⌈L/2⌉ · pos · d_model) memory; time as at the head of this module.

    Raises `ValueError` for more than `max_paths` head sequences; `top` finds the largest without forming them.
    """
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
        below = torch.einsum("upd,spd->su", upper, _lower_bias(frozen, middle))
        below[0] += entering  # biases that enter above the middle
        below[0, 0] += to.bias
        rows.append(below.flatten())
    values = torch.stack(rows)
    return AllPaths(names=frozen.source_names, values=values, n_layers=frozen.n_layers, n_heads=frozen.n_heads)


def _lower(frozen: Frozen, first: int, middle: int, x: Tensor) -> Tensor:
    """Streams at the middle `[sequence, pos, d_model]` of all sequences below it, from layer `first` on."""
    streams = x[None]
    for layer in range(first, middle):
        z = frozen.moved(layer, frozen.values(layer, streams))
        through = torch.einsum("shpk,hkd->shpd", z, frozen.W_O[layer])
        streams = torch.cat([streams[:, None], through], dim=1).flatten(0, 1)
    return streams


def _lower_bias(frozen: Frozen, middle: int) -> Tensor:
    """Return the streams at the middle of biases that enter below it, as `_lower` does of a source."""
    streams = torch.zeros(1, frozen.n_pos, frozen.R.shape[0], dtype=frozen.R.dtype, device=frozen.R.device)
    for layer in range(middle):
        v = frozen.values(layer, streams)
        v[0] += frozen.v_bias[layer][:, None]
        through = torch.einsum("shpk,hkd->shpd", frozen.moved(layer, v), frozen.W_O[layer])
        streams = torch.cat([streams[:, None], through], dim=1).flatten(0, 1)
        streams[0] += frozen.b_O[layer]
    return streams


def _upper(frozen: Frozen, middle: int, root: Tensor) -> tuple[Tensor, Tensor, dict[int, Tensor]]:
    """Gradients at the middle `[sequence, pos, d_model]` of all sequences above it, what biases add to each, and by
    layer what each MLP from the middle on adds to every sequence above it."""
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
