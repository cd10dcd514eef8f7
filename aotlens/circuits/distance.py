"""The QK circuit where positions rotate queries and keys: one matrix for each distance δ = destination − source.

    score(δ) = s · left W_Q R_δ (right W_K)ᵀ = Σ_f (a_f cos θ_f δ + b_f sin θ_f δ) + c        (`aotlens.conventions`)

The score is linear in R_δ, so its mean over distances is the same product with R̄ = Σ_δ w(δ) R_δ, where w(δ) is the
share of pairs of positions that are δ apart in a whole context: n_ctx − δ of them. Of a layer with a window of w
positions, distances end at w − 1; functions here read the configuration `ModelConfig.at_layer`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_whole
from aotlens.models import ModelConfig
from aotlens.models.positions import Rotation, alibi_slopes, rotation
from aotlens.models.weights import double

MEAN = (
    "rotary positions: scores are averaged over the distances of a whole context, weighted by pairs of positions; "
    "distance=δ gives those at one distance."
)
CAPPED = "scores: before their soft cap, c · tanh(score / c) with c = {:g}, which keeps their order."
DYNAMIC = "rotary positions: with dynamic scaling, frequencies depend on the length; here those of a whole context."


def weighted_distances(cfg: ModelConfig) -> tuple[Tensor, Float[Tensor, " distance"]]:
    """Return every distance from a query to a key that it may see, and the share of pairs of positions that have it."""
    n = cfg.n_ctx
    distances = torch.arange(1 - n if cfg.sees_later_keys else 0, cfg.shortest_window, device="cpu")
    weights = (n - distances.abs()).double()
    return distances, weights / weights.sum()


def rotation_at(cfg: ModelConfig, distance: int | None) -> Rotation | None:
    """Return R_δ, or R̄ for None, as what turns queries; None for a model that rotates nothing. Float64 on the CPU."""
    if not cfg.position_kind.rotates:
        return None
    if distance is not None:
        return rotation(cfg, torch.tensor(distance))
    distances, weights = weighted_distances(cfg)
    turns = rotation(cfg, distances)
    return Rotation(weights @ turns.cos, weights @ turns.sin, turns.interleaved)


def turned(rows: Float[Tensor, "*rows d_head"], turn: Rotation | None) -> Float[Tensor, "*rows d_head"]:
    """Return rows R_δ, in their own dtype and on their own device."""
    if turn is None:
        return rows
    return Rotation(turn.cos.to(rows), turn.sin.to(rows), turn.interleaved)(rows)


def in_pairs(cfg: ModelConfig, rows: Float[Tensor, "*rows d_head"]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first and second coordinate of each pair `[*rows, pair]`, and the coordinates without rotation."""
    assert cfg.rotary is not None
    n = cfg.d_head if cfg.rotary.dim is None else cfg.rotary.dim
    if cfg.rotary.pairs == "interleaved":
        return rows[..., :n:2], rows[..., 1:n:2], rows[..., n:]
    return rows[..., : n // 2], rows[..., n // 2 : n], rows[..., n:]


def mean_gram(cfg: ModelConfig, weight: Float[Tensor, "*heads d_model d_head"], sign: int) -> Tensor:
    """Return Σ_δ w(δ) R_{±δ} Wᵀ W R_{±δ}ᵀ `[*heads, d_head, d_head]`, float64: the Gram matrix of W R_{±δ}ᵀ averaged
    over distances."""
    weight = double(weight)
    if not cfg.position_kind.rotates:
        return weight.mT @ weight
    distances, shares = weighted_distances(cfg)
    turn = rotation(cfg, -sign * distances)
    # x R = x ∘ C + x J ∘ S for rows x, with C and S a coordinate's cosine and sine (1 and 0 where nothing is rotated)
    # and J a quarter turn of each pair: RᵀGR is four products with G, GJ, JᵀG and JᵀGJ, entry by entry.
    ones, no = torch.ones(len(distances), cfg.d_head, dtype=torch.float64), torch.zeros_like(turn.cos)
    rotated = torch.arange(cfg.d_head) < 2 * turn.cos.shape[-1]
    C = Rotation(turn.cos, no, turn.interleaved)(ones)
    S = Rotation(turn.sin, no, turn.interleaved)(ones) * rotated
    J = Rotation(no[0], no[0] + 1, turn.interleaved)(torch.eye(cfg.d_head, dtype=torch.float64)) * rotated
    gram, (weighted_C, weighted_S) = weight.mT @ weight, (shares[:, None] * part for part in (C, S))
    total = gram * (C.T @ weighted_C) + (gram @ J) * (C.T @ weighted_S)
    return total + (J.T @ gram) * (S.T @ weighted_C) + (J.T @ gram @ J) * (S.T @ weighted_S)


def checked_distance(cfg: ModelConfig, distance: object, *, biases: bool = True) -> int | None:
    """Return a distance on which scores depend. Raises `ValueError` outside the layer's context or window, and for a
    model without rotation and (if they count) ALiBi `biases`."""
    if distance is None:
        return None
    kind = cfg.position_kind
    if not (kind.rotates or (kind.biases and biases)):
        raise ValueError(
            f"distance={distance!r}: this model {kind.meaning}, so the circuits of its tokens are the same at every "
            "distance; leave it out."
        )
    return require_whole("distance", distance, 0, cfg.shortest_window - 1)


def alibi_bias(cfg: ModelConfig, head: int, distance: int) -> float:
    """Return the bias that ALiBi adds to every score of a head at a distance, in nats."""
    return -alibi_slopes(cfg)[head] * distance
