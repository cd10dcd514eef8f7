"""The contrast of a score: a softmax ignores what all keys of a query share, so a score alone explains nothing.

Against the mean, a term is its value at the key minus its mean over the visible keys, weighted by w. With w =
softmax(scores) = P the terms sum to log P_ij + H(P_i), and each is ∂ log P_ij ÷ ∂(its scale) at scale 1. Against a key
k they sum to log P_ij − log P_ik.

**Sides.** The query or the key of a score is a read-out of the layers below that takes the stream to d_head numbers.
With c the weights of the positions (1 at the query; δ_kj − w_k over keys), part x `[pos, d_model]` of the stream gives

    (c / s) x W,     and the side itself adds     Σc · (b W + b_Q or b_K)  +  c p W

where p are positions of kind "qk". All parts of both sides multiply: the score's contrast is Σ_ab ⟨q_a, k_b⟩.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aotlens.models import PHIS, ModelConfig
from aotlens.paths.frozen import head_results, source_streams
from aotlens.paths.groups import by_source_position
from aotlens.paths.path import Path, SourceName
from aotlens.paths.score.layer import ScoredLayer
from aotlens.paths.target import place_of

#: A key's position, "mean" (over the visible keys), None (the raw score), "default": what the model's φ asks for, or
#: "auto" (`aotlens.paths.score.expansion.default_contrast`).
Against: TypeAlias = int | str | None


@dataclass(frozen=True, eq=False)
class Contrast:
    """One cell, and what its score is compared with."""

    query: int
    key: int
    against: int | str | None
    """"mean", another key, or None for the raw score."""
    weights: Float[Tensor, " key"]
    """w: what is taken off, 0 at hidden keys; all 0 for the raw score."""
    coefficients: Float[Tensor, " key"]
    """δ_kj − w_k, by which the scores are summed to the contrast."""
    scores: Float[Tensor, " key"]
    """The model's own scores of the query, 0 at hidden keys."""
    visible: Bool[Tensor, " key"]
    log_softmax: Float[Tensor, " key"] | None
    """log softmax(scores), −∞ at hidden keys; None for a φ that does not normalise."""
    before_threshold: bool
    """Whether the softmax is not the pattern itself, which thresholds it."""

    @property
    def value(self) -> float:
        """The model's own score less what it is compared with, nats."""
        return float(self.coefficients @ self.scores)


def contrast(cfg: ModelConfig, scores: Float[Tensor, "query key"], query: Any, key: Any, against: Any) -> Contrast:
    """Return the contrast of a cell, from the head's scores (−∞ for a hidden key). Raises `ValueError` for a missing
    position, a hidden key, and another `against`."""
    n_pos = len(scores)
    i, j = place_of("query", query, n_pos), place_of("key", key, n_pos)
    phi, visible = PHIS[cfg.phi], scores[i].isfinite()
    _require_visible("key", i, j, visible)
    each_key = cfg.position_kind.rotates or cfg.qk_norm is not None
    if isinstance(against, str) and against == "default":
        against = "mean" if phi.normalises and not each_key else None
    if against is not None and each_key:
        raise ValueError(
            f"against={against!r}: this model's keys are rotated by their positions or have a norm of their own, so "
            "that each has another map of the stream, and a difference none; against=None explains the raw score."
        )
    row = torch.where(visible, scores[i], 0.0)
    log_softmax = scores[i].log_softmax(0) if phi.normalises else None
    weights = torch.zeros_like(row)
    if isinstance(against, str):
        if against != "mean":
            raise ValueError(f"against={against!r}: expected 'mean', a key's position, None for the raw score.")
        weights = visible.to(row) / visible.sum() if log_softmax is None else log_softmax.exp()
    elif against is not None:
        against = place_of("against", against, n_pos)
        _require_visible("against", i, against, visible)
        if against == j:
            raise ValueError(f"against={against}: expected another key than {j}; a score minus itself has no terms.")
        weights[against] = 1
    coefficients = -weights
    coefficients[j] += 1
    return Contrast(
        query=i,
        key=j,
        against=against,
        weights=weights,
        coefficients=coefficients,
        scores=row,
        visible=visible,
        log_softmax=log_softmax,
        before_threshold=phi.normalises and not phi.rows_sum_to_one,
    )


def _require_visible(name: str, query: int, key: int, visible: Tensor) -> None:
    if not bool(visible[key]):
        seen = visible.nonzero()[:, 0].tolist()
        raise ValueError(
            f"{name}={key}: expected a key that query {query} sees ({len(seen)} of them, {seen[0]} to {seen[-1]}); "
            "this one is hidden from it."
        )


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
        parts = {name: self.read(x) for name, x in frozen.direct.items()}
        return torch.cat([self._with_own(parts), self.read(head_results(frozen)).flatten(0, 1)])

    def by_source_position(self, other: Float[Tensor, " d_head"]) -> Float[Tensor, "source pos"]:
        """Return all paths of this side times the whole other side, by source and where it stands, nats."""
        below, root = self.layer.below, torch.outer(self.rows, self.W @ other)
        own = self.weights * (self.own @ other)
        parts = dict(zip(below.source_names, by_source_position(below.frozen, root, own), strict=True))
        if self.positions is not None:
            parts["position"] = self.weights * (self.positions @ other)
        return torch.stack([parts[name] for name in self.layer.source_names])

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
        """Return the size of a path at each position: the norm of what the side reads of it there. `ValueError` as
        `path`."""
        return (self.rows[:, None] * self.layer.below.stream(path) @ self.W).norm(dim=-1)

    def _with_own(self, parts: dict[SourceName, Tensor]) -> Tensor:
        """The parts of the sources with what the side itself adds, in the order of `source_names`."""
        if "bias" in parts:
            parts["bias"] = parts["bias"] + self.own_bias
        if self.positions is not None:
            parts["position"] = self.weights @ self.positions
        return torch.stack([parts[name] for name in self.layer.source_names])


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
