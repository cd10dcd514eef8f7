"""What positions add to a head's attention at a distance, apart from the tokens."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float64
from scipy.special import logsumexp

from aotlens.circuits import qk_circuit
from aotlens.models import AttentionOnlyTransformer


@torch.no_grad()
def distance_scores(model: AttentionOnlyTransformer, layer: int, head: int) -> Float64[np.ndarray, " distances"]:
    """p_δ for δ = 0 … n_ctx − 1: the mean over i of the score of position i for position i − δ, in nats.

    Positions × positions and, for models with biases, b_Q × positions. Token–position cross terms are left out. Raises
    `ValueError` for a model without positions.
    """
    if model.cfg.positions is None:
        raise ValueError(
            "distance: this model has positions=None, so no head tells one distance from another; leave distance=None."
        )
    between = qk_circuit(model, layer, head, "positions", "positions")
    from_bias = qk_circuit(model, layer, head, "bias", "positions")
    query = between.A.detach().cpu().double() + from_bias.A.detach().cpu().double()
    scores = (query @ between.B.detach().cpu().double()).numpy()
    return np.array([np.diagonal(scores, -delta).mean() for delta in range(len(scores))])


def distance_shares(model: AttentionOnlyTransformer, layer: int, head: int) -> Float64[np.ndarray, " distances"]:
    """The attention of a head to each distance δ = 0 … n = n_ctx // 2 if tokens had no say: softmax over δ of p_δ.

    Near 1 at one distance, the head attends by position, and a skip-trigram without positions says nothing of it.
    Raises `ValueError` for a model without positions.
    """
    scores = distance_scores(model, layer, head)[: max(model.cfg.n_ctx // 2, 1) + 1]
    return np.exp(scores - logsumexp(scores))


def log_competition(
    model: AttentionOnlyTransformer, layer: int, head: int, distance: int | str, n_background: int
) -> Float64[np.ndarray, " distances"]:
    """log C_δ, with C_δ = Σ_{δ'≠δ, 0≤δ'≤n} e^{p_δ' − p_δ}: one for a distance, n of them for `"mean"` (δ = 1 … n).

    A background token at every other distance up to n competes with the source at δ. Raises `ValueError` for a distance
    outside 1 to n, and for a model without positions.
    """
    scores = distance_scores(model, layer, head)[: n_background + 1]
    n = len(scores) - 1
    if n < 1:
        raise ValueError("distance: this model's context is too short to tell distances apart; leave distance=None.")
    if distance == "mean":
        chosen = range(1, n + 1)
    elif isinstance(distance, int) and not isinstance(distance, bool) and 1 <= distance <= n:
        chosen = range(distance, distance + 1)
    else:
        raise ValueError(f"distance={distance!r}: expected 1 to {n} (half the context), 'mean' or None.")
    return np.array([logsumexp(np.delete(scores, delta)) - scores[delta] for delta in chosen])
