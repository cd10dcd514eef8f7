"""The contrast of a score: a softmax ignores what all keys of a query share, so a score alone explains nothing.

Against the mean, a term is its value at the key minus its mean over the visible keys, weighted by w. With w =
softmax(scores) = P the terms sum to log P_ij + H(P_i), and each is ∂ log P_ij ÷ ∂(its scale) at scale 1. Against a key
k they sum to log P_ij − log P_ik.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aotlens.models import PHIS, ModelConfig
from aotlens.paths.target import whole_number

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
    """Return the contrast of one cell of a head, given its scores (−∞ where the key is hidden).

    Raises `ValueError` for a position that there is not, for a key hidden from the query, and for another `against`.
    """
    n_pos = len(scores)
    i, j = _position("query", query, n_pos), _position("key", key, n_pos)
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
        against = _position("against", against, n_pos)
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


def _position(name: str, value: Any, n_pos: int) -> int:
    position = whole_number(name, value)
    if not -n_pos <= position < n_pos:
        raise ValueError(f"{name}={position}: expected {-n_pos} to {n_pos - 1} for a prompt of {n_pos} positions.")
    return position % n_pos


def _require_visible(name: str, query: int, key: int, visible: Tensor) -> None:
    if not bool(visible[key]):
        seen = visible.nonzero()[:, 0].tolist()
        raise ValueError(
            f"{name}={key}: expected a key that query {query} sees ({len(seen)} of them, {seen[0]} to {seen[-1]}); "
            "this one is hidden from it."
        )
