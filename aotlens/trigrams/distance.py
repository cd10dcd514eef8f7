"""The contribution of positions to a head's attention at a distance, apart from the tokens."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float64, Shaped
from scipy.special import logsumexp
from torch import Tensor

from aotlens.circuits import qk_circuit
from aotlens.conventions import Head, HeadLike, as_head
from aotlens.models import AttentionOnlyTransformer, ModelConfig, folded_norm, require_ours
from aotlens.models.positions import alibi_slopes
from aotlens.models.traits import NOT_LINEAR
from aotlens.models.weights import double
from aotlens.trigrams.normaliser import background_distribution, log_background

#: A head that gives so much of its attention to one distance attends by position.
BY_POSITION = 0.9


@torch.no_grad()
def distance_scores(
    model: AttentionOnlyTransformer,
    head: HeadLike,
    *,
    background: Shaped[Tensor, " d_vocab"] | Shaped[np.ndarray, " d_vocab"] | None = None,
) -> Float64[np.ndarray, " distances"]:
    """Return p_δ for δ = 0 … n_ctx − 1: the mean over i of the score of position i for position i − δ, in nats.

    Positions × positions and, for models with biases, b_Q × positions. Token–position cross terms are left out.

    Where a norm reads tokens and positions together, position i is divided by the scale of the two, as it is for the
    background's tokens u (by default the checkpoint's training counts): s_i² = Σ_t u_t mean(centre(W_E[t] +
    W_pos[i])²) + ε. That is the stream's before layer 0; later layers' is larger (`relative_positions`).

    ALiBi's are −slope · δ. Raises `ValueError` for a model without positions or with rotary ones, and, where there is
    such a norm, without background.
    """
    require_ours(model, "distance_scores", without=(*NOT_LINEAR, "score_cap"))
    kind = model.cfg.position_kind
    if kind.biases:
        slope = alibi_slopes(model.cfg)[as_head(head, model.cfg)[1]]
        return -slope * np.arange(model.cfg.n_ctx, dtype=np.float64)
    if not kind.table:
        why = (
            "positions have no scores of their own: aotlens.circuits.qk_circuit(model, head, distance=δ) has those of "
            "tokens at a distance"
            if kind.rotates
            else "no head tells one distance from another; leave distance=None"
        )
        raise ValueError(f"distance: this model {kind.meaning}, so {why}.")
    between = qk_circuit(model, head, "positions", "positions")
    from_bias = qk_circuit(model, head, "bias", "positions")
    query, key = double(between.A), double(between.B)
    if relative_positions(model, between.heads[0][0]):
        scale = _stream_scale(model, background_distribution(model, background))
        query, key = query / scale[:, None], key / scale
    scores = ((query + double(from_bias.A)) @ key).numpy()
    return np.array([np.diagonal(scores, -delta).mean() for delta in range(len(scores))])


def relative_positions(model: AttentionOnlyTransformer, layer: int) -> str:
    """Return the reason why scores of positions are not the model's own on every input; empty where they are."""
    if not model.cfg.norm or model.cfg.positions != "learned":
        return ""
    if layer == 0:
        return "positions: the norm divides by the scale of token and position together; here by its mean over tokens."
    return (
        f"positions: layer {layer}'s norm divides by the whole stream's scale; here by that of token and position "
        "alone, averaged over tokens."
    )


def _stream_scale(
    model: AttentionOnlyTransformer, distribution: Float64[np.ndarray, " d_vocab"]
) -> Float64[Tensor, " pos"]:
    centre = folded_norm(model, 0).centre
    tokens, positions = (centre(double(rows)) for rows in (model.W_E, model.W_pos))
    u = torch.from_numpy(distribution)
    squares = u @ tokens.pow(2).sum(1) + 2 * positions @ (u @ tokens) + positions.pow(2).sum(1)
    return (squares / model.cfg.d_model + model.cfg.norm_eps).sqrt()


def distance_shares(
    model: AttentionOnlyTransformer,
    head: HeadLike,
    *,
    background: Shaped[Tensor, " d_vocab"] | Shaped[np.ndarray, " d_vocab"] | None = None,
) -> Float64[np.ndarray, " distances"]:
    """Return the attention of a head to each distance δ = 0 … n = n_ctx // 2 if tokens had no say: softmax over δ of
    p_δ.

    Near 1 at one distance, the head attends by position, and a skip-trigram without positions says nothing of it.
    Raises `ValueError` as `distance_scores`, and for a layer after the first whose norm reads tokens and positions
    together: what earlier heads write decides the scale there.
    """
    require_ours(model, "distance_shares", without=(*NOT_LINEAR, "score_cap"))
    layer, _ = as_head(head, model.cfg)
    if layer > 0 and (relative := relative_positions(model, layer)):
        raise ValueError(f"distance_shares: {relative}")
    scores = distance_scores(model, head, background=background)[: max(model.cfg.n_ctx // 2, 1) + 1]
    return np.exp(scores - logsumexp(scores))


def own_token_heads(model: AttentionOnlyTransformer, at_least: float = BY_POSITION) -> tuple[Head, ...]:
    """Return the heads of the first layer that attend to the token itself, whatever it is: at least so much of their
    attention goes to δ = 0 if tokens had no say (`distance_shares`). What they write belongs to the direct path
    (`bigrams`).

    None in a model without positions or with rotary ones, and none in one with a norm, where what heads write does not
    add to the path.
    """
    require_ours(model, "own_token_heads")
    kind = model.cfg.position_kind
    if not (kind.table or kind.biases) or model.cfg.norm is not None:
        return ()
    shares = [float(distance_shares(model, (0, head))[0]) for head in range(model.cfg.n_heads)]
    return tuple((0, head) for head, share in enumerate(shares) if share >= at_least)


def log_competition(
    model: AttentionOnlyTransformer,
    head: HeadLike,
    distance: int | np.integer | str,
    n_background: int,
    background: Shaped[Tensor, " d_vocab"] | Shaped[np.ndarray, " d_vocab"] | None = None,
) -> Float64[np.ndarray, " distances"]:
    """Return log C_δ, with C_δ = Σ_{δ'≠δ, 0≤δ'≤n} e^{p_δ' − p_δ}: one for a distance, n of them for `"mean"` (δ = 1 …
    n).

    A background token at every other distance up to n competes with the source at δ. Raises `ValueError` for a distance
    outside 1 to n, and for a model without positions.
    """
    scores = distance_scores(model, head, background=background)[: n_background + 1]
    n = len(scores) - 1
    chosen = range(1, n + 1) if distance == "mean" and n >= 1 else [whole_distance(distance, n, "'mean' ")]
    return np.array([logsumexp(np.delete(scores, delta)) - scores[delta] for delta in chosen])


def rotated_background(
    model: AttentionOnlyTransformer,
    head: HeadLike,
    distance: int | np.integer | str,
    n_background: int,
    background: Shaped[Tensor, " d_vocab"] | Shaped[np.ndarray, " d_vocab"] | None = None,
) -> Float64[np.ndarray, " d_vocab"]:
    """Return N_δ[d] = log mean over δ' ≠ δ of Σ_b u_b e^{q_δ'[d, b]}, δ' from 0 to n: what the destination d of a
    rotary head scores a background token at another distance than δ, nats.

    Time: n products of the circuit with an exp an entry. Raises `ValueError` for a distance outside 1 to n.
    """
    n = farthest(model.cfg, n_background)
    delta, u = whole_distance(distance, n), background_distribution(model, background)
    total = np.full(len(u), -np.inf)
    for other in range(n + 1):
        if other != delta:
            total = np.logaddexp(total, log_background(qk_circuit(model, head, biases=True, distance=other), u))
    return total - np.log(n)


def farthest(cfg: ModelConfig, n_background: int) -> int:
    """Return the largest distance to a source of a head with rotary positions."""
    return min(n_background, cfg.n_ctx - 1)


def whole_distance(distance: int | np.integer | str, n: int, or_else: str = "") -> int:
    """Return a distance from 1 to n. Raises `ValueError` for another, which says what may stand there `or_else`."""
    if n < 1:
        raise ValueError("distance: this model's context is too short to tell distances apart; leave distance=None.")
    if isinstance(distance, int | np.integer) and not isinstance(distance, bool) and 1 <= distance <= n:
        return int(distance)
    raise ValueError(f"distance={distance!r}: expected 1 to {n} (half the context), {or_else}or None.")
