"""One side of a score, its query or its key: a read-out of the layers below that takes the stream to d_head numbers.

With c the weights of the positions (1 at the query; δ_kj − w_k over keys), part x `[pos, d_model]` of the stream gives

    (c / s) x W,     and the side itself adds     Σc · (b W + b_Q or b_K)  +  c p W

where p are positions of kind "qk". All parts of both sides multiply: the score's contrast is Σ_ab ⟨q_a, k_b⟩.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.paths.groups import by_source_position
from aotlens.paths.path import Path, SourceName
from aotlens.paths.score.contrast import Contrast
from aotlens.paths.score.layer import ScoredLayer
from aotlens.paths.streams import head_results, source_streams


@dataclass(frozen=True, eq=False)
class ScoreSide:
    """The query or the key of one cell as a read-out."""

    layer: ScoredLayer
    weights: Float[Tensor, " pos"]
    """c, the weight of each position."""
    W: Float[Tensor, "d_model d_head"]
    own: Float[Tensor, " d_head"]
    """The side's own bias at one position."""
    positions: Float[Tensor, "pos d_head"] | None
    """The terms that positions of kind "qk" add at each position."""

    @property
    def rows(self) -> Float[Tensor, " pos"]:
        """The weights of the positions behind the norm, c / s."""
        return self.weights * self.layer.inverse_scale

    @property
    def own_bias(self) -> Float[Tensor, " d_head"]:
        """The side's own bias, with the weights' sum: 0 on the key side against a contrast."""
        return self.weights.sum() * self.own

    def read(self, streams: Float[Tensor, "*more pos d_model"]) -> Float[Tensor, "*more d_head"]:
        """Return what the side reads of parts of the stream."""
        return (self.rows @ streams) @ self.W

    def by_order(self) -> Float[Tensor, "order d_head"]:
        """Return the contribution of the paths of each length."""
        parts = self.read(self.layer.below._orders)
        parts[0] += self.own_bias
        if self.positions is not None:
            parts[0] += self.weights @ self.positions
        return parts

    def by_source(self) -> Float[Tensor, "source d_head"]:
        """Return the contribution of all paths of each source; rows as `source_names`."""
        parts = {name: self.read(x) for name, x in source_streams(self.layer.below.frozen).items()}
        return self._with_own(parts)

    def by_head(self) -> Float[Tensor, "group d_head"]:
        """Return the contribution of the paths without heads, by source, and then of each head itself, in order."""
        frozen = self.layer.below.frozen
        parts: dict[SourceName, Tensor] = {name: self.read(x) for name, x in frozen.entering.items()}
        if frozen.has_bias:
            parts["bias"] = self.read(frozen.bias_before[-1].expand(frozen.n_pos, -1))
        return torch.cat([self._with_own(parts), self.read(head_results(frozen)).flatten(0, 1)])

    def by_source_position(self, other: Float[Tensor, " d_head"]) -> Float[Tensor, "source pos"]:
        """Return all paths of this side times the whole other side, by source and where it stands, nats."""
        root = torch.outer(self.rows, self.W @ other)
        own = self.weights * (self.own @ other)
        parts = dict(zip(self._stream_names, by_source_position(self.layer.below.frozen, root, own), strict=True))
        if self.positions is not None:
            parts["position"] = self.weights * (self.positions @ other)
        return torch.stack([parts[name] for name in source_names(self.layer)])

    def path(self, path: Path) -> Float[Tensor, " d_head"]:
        """Return the contribution of one path. Raises `ValueError` for a path that the layers below do not have."""
        position = path.source_position
        if self.positions is not None and path.source == "position":
            if path.heads:
                raise ValueError(
                    f'path {path}: positions of kind "qk" are added to queries and keys, behind every head.'
                )
            if position is not None and not 0 <= position < len(self.weights):
                raise ValueError(f"path {path}: expected a source position 0 to {len(self.weights) - 1}.")
            return (
                self.weights @ self.positions if position is None else self.weights[position] * self.positions[position]
            )
        part = self.read(self.layer.below.stream(path))
        if path.source == "bias" and not path.heads:
            part = part + (self.own_bias if position is None else self.weights[position] * self.own)
        return part

    def arrivals(self, path: Path) -> Float[Tensor, " pos"]:
        """Return the size of a path at each position: the length of what is read of the stream there, weights in it.

        Raises `ValueError` for a path that the layers below do not have.
        """
        return (self.rows[:, None] * self.layer.below.stream(path) @ self.W).norm(dim=-1)

    @property
    def _stream_names(self) -> Sequence[SourceName]:
        return self.layer.below.source_names

    def _with_own(self, parts: dict[SourceName, Tensor]) -> Tensor:
        """The parts of the sources with what the side itself adds, in the order of `source_names`."""
        if "bias" in parts:
            parts["bias"] = parts["bias"] + self.own_bias
        if self.positions is not None:
            parts["position"] = self.weights @ self.positions
        return torch.stack([parts[name] for name in source_names(self.layer)])


def source_names(layer: ScoredLayer) -> tuple[SourceName, ...]:
    """Return the sources of either side: as of the expansion, and "position" also where queries and keys alone have
    it."""
    names = layer.below.source_names
    if layer.q_positions is None:
        return names
    return (*(name for name in names if name != "bias"), "position", *(name for name in names if name == "bias"))


def sides_of(layer: ScoredLayer, head: int, contrast: Contrast) -> tuple[ScoreSide, ScoreSide]:
    """Return the query side and the key side of a cell."""
    at_query = torch.zeros_like(contrast.coefficients)
    at_query[contrast.query] = 1
    positions: tuple[Tensor, Tensor] | tuple[None, None] = (None, None)
    if layer.q_positions is not None and layer.k_positions is not None:
        positions = (layer.q_positions[head], layer.k_positions[head])
    maps = [(layer.W_Q[head], layer.q_bias[head]), (layer.W_K[head], layer.k_bias[head])]
    if layer.placing is not None:
        places = zip(maps, layer.placing, (contrast.query, contrast.key), strict=True)
        maps = [(place(W, head, position), place(own[None], head, position)[0]) for (W, own), place, position in places]
    return (
        ScoreSide(layer, at_query, *maps[0], positions[0]),
        ScoreSide(layer, contrast.coefficients, *maps[1], positions[1]),
    )
