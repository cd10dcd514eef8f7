"""The dependence of a rotary head's scores on distance, tokens, or both together; by factors of d_head numbers.

With destination u ~ p, source v ~ p (unigram shares) and distance δ ~ w(δ) ∝ n_ctx − δ independent, q = u's query, k =
v's key, means q̄, k̄, covariances Σ_Q, Σ_K and R̄ = Σ w(δ) R_δ, the score q R_δ kᵀ has the analysis of variance

    δ      Var_w(q̄ R_δ k̄ᵀ)                                        v      q̄ R̄ Σ_K R̄ᵀ q̄ᵀ
    uv     tr(Σ_Q R̄ Σ_K R̄ᵀ)                                      vδ     Σ w q̄ R_δ Σ_K R_δᵀ q̄ᵀ − v
    uδ     Σ w k̄ R_δᵀ Σ_Q R_δ k̄ᵀ − u,  u = k̄ R̄ᵀ Σ_Q R̄ k̄ᵀ        uvδ    Σ w tr(Σ_Q R_δ Σ_K R_δᵀ) − uv

in nats². u alone is left out: a constant of the destination changes no softmax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.circuits.distance import in_pairs, weighted_distances
from aotlens.circuits.family import CircuitFamily, DistanceProfile
from aotlens.circuits.qk_ov import qk_circuit
from aotlens.conventions import Head, HeadLike, as_head
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.models.positions import frequencies, rotation
from aotlens.models.weights import double
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

#: Distances whose d_head × d_head matrices are held at once.
_AT_ONCE = 256


@dataclass(frozen=True, kw_only=True, eq=False)
class Reach(Result):
    """The variance of one head's scores by its sources, and how sharply they single out the token before."""

    head: Head
    exact: bool
    relative: str
    """The reasons why token circuits of this head are not the model's own scores; empty where they are."""
    variances: tuple[float, ...]
    """nats², in the order of `terms`."""
    terms: tuple[str, ...] = ("δ", "v", "uv", "uδ", "vδ", "uvδ")
    """u is the destination, v the source, δ the distance."""
    distances: Int64[np.ndarray, " distance"]
    mean_scores: Float64[np.ndarray, " distance"]
    """q̄ R_δ k̄ᵀ: the mean score at each distance, nats."""
    theta: Float64[np.ndarray, " pair"]
    """Frequencies, in radians a position."""
    amplitudes: Float64[np.ndarray, " pair"]
    """Root mean square over pairs of tokens of √(a_f² + b_f²), nats: how much a frequency can tell distances apart."""
    previous_token: float
    """The least over δ ≠ 1 of mean ÷ standard deviation of s(1) − s(δ), over a destination and two sources drawn each
    by itself, as in text other tokens stand at other distances. Large and positive, the head scores the token before
    above any single other one whatever the tokens are; of many others, the highest may still be above it."""

    @property
    def shares(self) -> dict[str, float]:
        """Shares of the variance by "distance" (δ), "token" (v + uv) and "both" (uδ + vδ + uvδ)."""
        parts = dict(zip(self.terms, self.variances, strict=True))
        named = {
            "distance": parts["δ"],
            "token": parts["v"] + parts["uv"],
            "both": parts["uδ"] + parts["vδ"] + parts["uvδ"],
        }
        total = sum(named.values())
        return {name: value / total if total > 0 else 0.0 for name, value in named.items()}

    @property
    def headline(self) -> str:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in self.shares.items())
        return (
            f"head {self.head[0]}.{self.head[1]}: {shares} of the variance of its scores; highest mean score at "
            f"distance {self.distances[self.mean_scores.argmax()]}; previous token {self.previous_token:+.2f} sd"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a term: term, variance (nats²)."""
        return data_frame({"term": self.terms, "variance": self.variances})


@torch.no_grad()
def distance_profile(
    model: AttentionOnlyTransformer, head: HeadLike, destination: int | str, source: int | str
) -> DistanceProfile:
    """Return the score of one destination token for one source token at every distance of the context, biases included,
    and what each frequency adds to it.

    Raises `ValueError` for a model whose scores of tokens do not depend on the distance, and for a token that the model
    does not have.
    """
    require_ours(model, "distance_profile")
    return _family(model, head).profile(destination, source)


@torch.no_grad()
def reach(model: AttentionOnlyTransformer, head: HeadLike) -> Reach:
    """Return the analysis of variance of a rotary head's scores of tokens; formulas at the head of this module.

    p are the shares of the training tokens that are stored with the checkpoint, or the same for every token. Time:
    O(V · d_head² + n_ctx · d_head³) in float64 on the CPU. Raises `ValueError` for a model without rotary positions.
    """
    require_ours(model, "reach")
    cfg = model.cfg
    if not cfg.position_kind.rotates:
        raise ValueError(f"reach: expected a model with rotary positions; this one {cfg.position_kind.meaning}.")
    family = _family(model, head)
    cfg = family.cfg
    queries, keys = double(family.content.A), double(family.content.B.T)
    counts = model.unigram_counts
    p = torch.ones(len(queries)) if counts is None else counts
    p = double(p.float()) / double(p.float()).sum()
    (q, S_Q), (k, S_K) = (_moments(rows, p) for rows in (queries, keys))
    distances, w = weighted_distances(cfg)
    eye = torch.eye(cfg.d_head, dtype=torch.float64)
    first = rotation(cfg, torch.tensor(1))(eye)
    sums: dict[str, list[Tensor]] = {name: [] for name in ("mean", "v", "u", "uv", "margin")}
    _, of_source, _, of_both = _terms(q, S_Q, k, S_K, first[None])
    nearest = of_source + of_both
    R_mean = torch.zeros_like(eye)
    for part, share in zip(distances.split(_AT_ONCE), w.split(_AT_ONCE), strict=True):
        R = rotation(cfg, part[:, None])(eye)  # [distance, d_head, d_head]
        R_mean += torch.einsum("d,dij->ij", share, R)
        for name, value in zip(("mean", "v", "u", "uv"), _terms(q, S_Q, k, S_K, R), strict=True):
            sums[name].append(value)
        mean, _, u, _ = _terms(q, S_Q, k, S_K, first - R)
        of_sources = nearest + sums["v"][-1] + sums["uv"][-1]
        sums["margin"].append(mean / (u + of_sources).clamp(min=torch.finfo(torch.float64).tiny).sqrt())
    means, v_at, u_at, uv_at, margins = (torch.cat(values) for values in sums.values())
    of_v, of_u, of_uv = (float(value) for value in _terms(q, S_Q, k, S_K, R_mean[None])[1:])
    variances = (
        float(w @ means.square() - (w @ means) ** 2), of_v, of_uv, float(w @ u_at) - of_u, float(w @ v_at) - of_v,
        float(w @ uv_at) - of_uv,
    )  # fmt: skip
    squares = []
    for rows in (queries, keys):
        x, y, _ = in_pairs(cfg, rows)
        squares.append(p @ (x.square() + y.square()))
    return Reach(
        head=as_head(head, model.cfg),
        exact=family.content.exact,
        relative=family.content.relative,
        variances=tuple(max(value, 0.0) for value in variances),
        distances=distances.numpy(),
        mean_scores=means.numpy(),
        theta=frequencies(cfg).numpy(),
        amplitudes=(squares[0] * squares[1]).sqrt().numpy(),
        previous_token=float(margins[distances != 1].min()) if len(distances) > 2 else float("nan"),
    )


def _family(model: AttentionOnlyTransformer, head: HeadLike) -> CircuitFamily:
    n = model.cfg.at_layer(as_head(head, model.cfg)[0]).shortest_window
    return qk_circuit(model, head, biases=True, distance=range(n))


def _moments(rows: Float64[Tensor, "token d_head"], p: Float64[Tensor, " token"]) -> tuple[Tensor, Tensor]:
    mean = p @ rows
    centred = rows - mean
    return mean, centred.T @ (p[:, None] * centred)


def _terms(q: Tensor, S_Q: Tensor, k: Tensor, S_K: Tensor, R: Float64[Tensor, "distance a b"]) -> tuple[Tensor, ...]:
    """q̄ R k̄ᵀ, and of q R kᵀ the variances over v, over u, and of their interaction, for each R."""
    qR, Rk = q @ R, R @ k
    inner = R.mT @ S_Q @ R
    return qR @ k, ((qR @ S_K) * qR).sum(-1), ((Rk @ S_Q) * Rk).sum(-1), (inner * S_K).sum((-2, -1))
