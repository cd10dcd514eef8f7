"""What a source competes with for a destination's attention: the background's tokens, and positions at a distance.

N[d] = log Σ_b u_b e^{q[d, b]} is what a destination scores the background's tokens, streamed.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float64, Int64, Shaped
from scipy.special import logsumexp
from torch import Tensor

from aotlens.circuits import Circuit, qk_circuit
from aotlens.conventions import Head, HeadLike, as_head
from aotlens.models import AttentionOnlyTransformer, ModelConfig, folded_norm, require_ours
from aotlens.models.positions import alibi_slopes
from aotlens.models.traits import NOT_LINEAR
from aotlens.models.weights import double

#: Counts or probabilities of tokens; None: the training counts stored with the checkpoint.
Background: TypeAlias = Shaped[Tensor, " d_vocab"] | Shaped[np.ndarray, " d_vocab"] | None
_TILE = (1024, 1024)
_MOST_FREQUENT = 1024


def background_distribution(model: AttentionOnlyTransformer, background: Background) -> Float64[np.ndarray, " d_vocab"]:
    """Return u, summing to 1: the counts (or probabilities) of `background`, or the training counts stored with the
    checkpoint.

    Tokens that never occur may have 0. Raises `ValueError` where there are no counts, or not one finite, non-negative
    number a token.
    """
    require_ours(model, "background_distribution")
    counts = model.unigram_counts if background is None else background
    if counts is None:
        raise ValueError(
            "background: this model has no training counts (model.unigram_counts is None); give one count a token, "
            "such as TokenFile.counts()."
        )
    on_cpu = counts.cpu().double().numpy() if isinstance(counts, Tensor) else counts
    values = np.asarray(on_cpu, dtype=np.float64)
    if values.shape != (model.cfg.d_vocab,) or not np.isfinite(values).all() or (values < 0).any() or not values.any():
        raise ValueError(
            f"background: expected {model.cfg.d_vocab} finite counts ≥ 0, not all 0, got shape {list(values.shape)} "
            f"from {values.min() if values.size else 'nothing'} to {values.max() if values.size else 'nothing'}."
        )
    return values / values.sum()


@torch.no_grad()
def log_background(
    qk: Circuit,
    distribution: Float64[np.ndarray, " d_vocab"],
    destinations: Int64[np.ndarray, " destinations"] | None = None,
) -> Float64[np.ndarray, " destinations"]:
    """Return N of every destination of a QK circuit (or of some, by id), nats, in the circuit's precision.

    `aotlens.circuits.row_statistics` gives the same (log_mean_exp) in float64, at several times the cost.

    Time: one product of the circuit and an exp an entry. Memory: a tile. Rows are shifted by what the most frequent
    tokens alone amount to, a lower bound of N, so that the sum cannot vanish; a row where that is so far off that the
    rest overflows is shifted by its maximum.
    """
    query, key, weights, frequent = _prepared(qk, distribution)
    if destinations is not None:
        query = query[torch.from_numpy(destinations).to(query.device)]
    all_seen = torch.from_numpy(np.flatnonzero(distribution)).to(query.device)
    result = np.empty(len(query))
    for start in range(0, len(query), _TILE[0]):
        rows = query[start : start + _TILE[0]]
        shift = torch.logsumexp(rows @ key[frequent].T + weights[frequent].log(), dim=1, keepdim=True)
        total = _shifted_sum(rows, key, weights, shift)
        if not bool(total.isfinite().all()):
            shift = torch.stack([(rows @ part.T).amax(1) for part in key[all_seen].split(_TILE[1])]).amax(0)[:, None]
            total = _shifted_sum(rows, key[all_seen], weights[all_seen], shift)
        result[start : start + len(rows)] = shift[:, 0].cpu().double().numpy() + total.cpu().log().numpy()
    if not np.isfinite(result).all():
        raise ValueError("the QK circuit has entries that are not finite; is some weight not?")
    return result


@torch.no_grad()
def log_background_bound(qk: Circuit, distribution: Float64[np.ndarray, " d_vocab"]) -> Float64[np.ndarray, " d_vocab"]:
    """Return a lower bound of N for every destination, at a small part of its cost: nats.

    The most frequent tokens are summed; the rest enters as its total weight times e^(its mean score), since a mean of
    exponentials is at least the exponential of the mean (Jensen). What float32 rounding can do to either is taken off.
    """
    query, key, weights, frequent = _prepared(qk, distribution)
    rest = weights.clone()
    rest[frequent] = 0.0
    weight = float(rest.double().sum()) if rest.device.type != "mps" else float(rest.sum())
    mean = rest / weight @ key if weight > 0 else key[0]
    result = np.empty(len(query))
    for start in range(0, len(query), _TILE[0]):
        rows = query[start : start + _TILE[0]]
        level = torch.logsumexp(rows @ key[frequent].T + weights[frequent].log(), dim=1).cpu().double().numpy()
        if weight > 0:
            level = np.logaddexp(level, (rows @ mean).cpu().double().numpy() + np.log(weight))
        result[start : start + len(rows)] = level
    lengths = [rows.norm(dim=1).cpu().double().numpy() for rows in (query, key)]
    rounding = 2.0 ** (-53 if query.dtype == torch.float64 else -24) * (query.shape[1] + 8)
    return result - 4 * rounding * lengths[0] * lengths[1].max() - (1e-12 if query.dtype == torch.float64 else 1e-5)


def _prepared(qk: Circuit, distribution: np.ndarray) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return queries, keys, weights, and the ids of the most frequent tokens."""
    kind = torch.float64 if qk.A.dtype == torch.float64 else torch.float32
    query, key = qk.A.detach().to(kind), qk.B.detach().to(kind).T
    seen = np.flatnonzero(distribution)
    frequent = seen[np.argsort(-distribution[seen], kind="stable")[:_MOST_FREQUENT]]
    return (
        query,
        key,
        torch.from_numpy(distribution).to(kind).to(query.device),
        torch.from_numpy(frequent).to(query.device),
    )


def _shifted_sum(rows: Tensor, key: Tensor, weights: Tensor, shift: Tensor) -> Tensor:
    """Σ_b u_b e^{q[d, b] − shift[d]}; partial sums are collected in float64 (MPS has none: on the CPU)."""
    shifted = torch.cat([rows, -shift], dim=1)
    total = torch.zeros(len(rows), dtype=torch.float64)
    for part, weight in zip(key.split(_TILE[1]), weights.split(_TILE[1]), strict=True):
        tile = shifted @ torch.cat([part, torch.ones_like(part[:, :1])], dim=1).T
        total += torch.mv(tile.exp_(), weight).cpu().double()
    return total


#: A head that gives so much of its attention to one distance attends by position.
BY_POSITION = 0.9


@torch.no_grad()
def distance_scores(
    model: AttentionOnlyTransformer,
    head: HeadLike,
    *,
    background: Background = None,
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
    background: Background = None,
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
    background: Background = None,
) -> Float64[np.ndarray, " distances"]:
    """Return log C_δ, with C_δ = Σ_{δ'≠δ, 0≤δ'≤n} e^{p_δ' − p_δ}: one for a distance, n of them for `"mean"` (δ = 1 …
    n).

    A background token at every other distance up to n competes with the source at δ. Raises `ValueError` for a distance
    outside 1 to n, and for a model without positions.
    """
    scores = distance_scores(model, head, background=background)[: n_background + 1]
    n = len(scores) - 1
    deltas = range(1, n + 1) if distance == "mean" and n >= 1 else [whole_distance(distance, n, "'mean' ")]
    return np.array([logsumexp(np.delete(scores, delta)) - scores[delta] for delta in deltas])


def rotated_background(
    model: AttentionOnlyTransformer,
    head: HeadLike,
    distance: int | np.integer | str,
    n_background: int,
    background: Background = None,
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
