"""N[d] = log Σ_b u_b e^{q[d, b]}: what a destination scores the background's tokens, streamed."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float64, Shaped
from torch import Tensor

from aotlens.circuits import Circuit
from aotlens.models import AttentionOnlyTransformer

_TILE = (1024, 1024)
_MOST_FREQUENT = 1024


def background_distribution(
    model: AttentionOnlyTransformer, background: Shaped[Tensor, " d_vocab"] | Shaped[np.ndarray, " d_vocab"] | None
) -> Float64[np.ndarray, " d_vocab"]:
    """u, summing to 1: the counts (or probabilities) given, or the training counts stored with the checkpoint.

    Tokens that never occur may have 0. Raises `ValueError` where there are no counts, or not one finite, non-negative
    number a token.
    """
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
def log_background(qk: Circuit, distribution: Float64[np.ndarray, " d_vocab"]) -> Float64[np.ndarray, " d_vocab"]:
    """N of every destination of a QK circuit, nats, in the circuit's precision.

    `aotlens.circuits.row_statistics` gives the same (log_mean_exp) in float64, at several times the cost.

    Time: one product of the circuit and an exp an entry. Memory: a tile. Rows are shifted by what the most frequent
    tokens alone amount to, a lower bound of N, so that the sum cannot vanish; a row where that is so far off that the
    rest overflows is shifted by its maximum.
    """
    kind = torch.float64 if qk.A.dtype == torch.float64 else torch.float32
    seen = np.flatnonzero(distribution)
    frequent = seen[np.argsort(-distribution[seen], kind="stable")[:_MOST_FREQUENT]]
    query, key = qk.A.detach().to(kind), qk.B.detach().to(kind).T
    weights = torch.from_numpy(distribution).to(kind).to(query.device)
    chosen, all_seen = (torch.from_numpy(ids).to(query.device) for ids in (frequent, seen))
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
