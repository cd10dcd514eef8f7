"""N[d] = log Σ_b u_b e^{q[d, b]}: what a destination scores the background's tokens, streamed."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float64, Int64, Shaped
from torch import Tensor

from aotlens.circuits import Circuit
from aotlens.models import AttentionOnlyTransformer, require_ours

_TILE = (1024, 1024)
_MOST_FREQUENT = 1024


def background_distribution(
    model: AttentionOnlyTransformer, background: Shaped[Tensor, " d_vocab"] | Shaped[np.ndarray, " d_vocab"] | None
) -> Float64[np.ndarray, " d_vocab"]:
    """Return u, summing to 1: the counts (or probabilities) given, or the training counts stored with the checkpoint.

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
    query, key, weights, chosen = _prepared(qk, distribution)
    if destinations is not None:
        query = query[torch.from_numpy(destinations).to(query.device)]
    all_seen = torch.from_numpy(np.flatnonzero(distribution)).to(query.device)
    result = np.empty(len(query))
    for start in range(0, len(query), _TILE[0]):
        rows = query[start : start + _TILE[0]]
        shift = torch.logsumexp(rows @ key[chosen].T + weights[chosen].log(), dim=1, keepdim=True)
        total = _shifted_sum(rows, key, weights, shift)
        if not bool(total.isfinite().all()):
            shift = torch.stack([part.amax(1) for part in _products(rows, key[all_seen])]).amax(0)[:, None]
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
    query, key, weights, chosen = _prepared(qk, distribution)
    rest = weights.clone()
    rest[chosen] = 0.0
    weight = float(rest.double().sum()) if rest.device.type != "mps" else float(rest.sum())
    mean = rest / weight @ key if weight > 0 else key[0]
    result = np.empty(len(query))
    for start in range(0, len(query), _TILE[0]):
        rows = query[start : start + _TILE[0]]
        level = torch.logsumexp(rows @ key[chosen].T + weights[chosen].log(), dim=1).cpu().double().numpy()
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


def _products(rows: Tensor, key: Tensor) -> list[Tensor]:
    return [rows @ part.T for part in key.split(_TILE[1])]


def _shifted_sum(rows: Tensor, key: Tensor, weights: Tensor, shift: Tensor) -> Tensor:
    """Σ_b u_b e^{q[d, b] − shift[d]}; partial sums are collected in float64 (MPS has none: on the CPU)."""
    shifted = torch.cat([rows, -shift], dim=1)
    total = torch.zeros(len(rows), dtype=torch.float64)
    for part, weight in zip(key.split(_TILE[1]), weights.split(_TILE[1]), strict=True):
        tile = shifted @ torch.cat([part, torch.ones_like(part[:, :1])], dim=1).T
        total += torch.mv(tile.exp_(), weight).cpu().double()
    return total
