"""A head's two circuits, made ready for skip-trigrams: what a source, a destination and an out contribute.

With q[d, s] the score in nats of destination d for source s, u the background unigram distribution, and w[s, o] the
logit that attending to s adds to o,

    N[d]  = log Σ_b u_b e^{q[d, b]}                   what d scores an average token, in nats
    z[d, s] = q[d, s] − N[d]                          nats: softmax ignores a constant per destination, and so does z
    ov[s, o] = w[s, o] − mean over o' of w[s, o']     logits: softmax over outs ignores that mean
    attention(z) = mean over distances of 1 / (1 + C e^{−z})

q is tokens × tokens with the biases of both sides: b_Q · k[s] depends on the source and stays in z, what depends on the
destination alone cancels. Both z and ov are products of two thin factors, with N as one more inner dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from scipy.special import expit
from torch import Tensor

from aotlens.circuits import Circuit, ov_circuit, qk_circuit
from aotlens.conventions import Head, HeadLike, as_head
from aotlens.models import PHIS, AttentionOnlyTransformer
from aotlens.trigrams.background import (
    Background,
    background_distribution,
    farthest,
    log_background,
    log_competition,
    rotated_background,
    whole_distance,
)


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadFactors:
    """z = key · query and ov = value · out, row by row, for the tokens that `sources`, `destinations`, `outs` name."""

    query: Float[Tensor, "destination inner"]
    """The destination's query, scaled, and −N."""
    key: Float[Tensor, "source inner"]
    """The source's key, and 1."""
    value: Float[Tensor, "source d_head"]
    out: Float[Tensor, "out d_head"]
    """Centred over all tokens of the vocabulary, whatever the filters."""
    sources: Int64[np.ndarray, " source"]
    """The ids of the sources, ascending."""
    destinations: Int64[np.ndarray, " destination"]
    outs: Int64[np.ndarray, " out"]
    log_competition: Float64[np.ndarray, " distances"]
    """log C of every distance that attention is averaged over."""

    def attention(self, z: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
        """Return the source's share of attention, 0 to 1; increasing in z (nats)."""
        if len(self.log_competition) == 1:
            return expit(z - self.log_competition[0])
        total = np.zeros(z.shape)
        for log_c in self.log_competition:
            total += expit(z - log_c)
        return total / len(self.log_competition)


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadCircuits:
    """A head's two circuits between tokens, and what is relative about them."""

    head: Head
    qk: Circuit
    ov: Circuit
    n_background: int
    """Background tokens that a source competes with: half the context."""
    distance: int | None
    """The distance of the tokens of `qk`, where positions rotate it; None for the same at all distances."""
    masked: bool
    """Whether the model hides keys besides later ones, of which attention here knows nothing."""

    @property
    def relative(self) -> str:
        """The reasons why entries are not the model's own on every input; empty where they are."""
        mask = "attention: the model's attn_mask hides positions; here all of half a context compete." * self.masked
        return " ".join(dict.fromkeys(reason for reason in (self.qk.relative, self.ov.relative, mask) if reason))

    def factors(
        self, normaliser: Float64[np.ndarray, " d_vocab"], log_competition: Float64[np.ndarray, " distances"]
    ) -> HeadFactors:
        """Return both circuits with the normaliser N in place, for all tokens of the vocabulary."""
        query = self.qk.A
        minus_n = torch.as_tensor(-normaliser, dtype=query.dtype)[:, None].to(query.device)
        key = self.qk.B.T
        out = self.ov.B.T
        everything = np.arange(len(query), dtype=np.int64)
        return HeadFactors(
            query=torch.cat([query, minus_n], dim=1),
            key=torch.cat([key, torch.ones_like(key[:, :1])], dim=1),
            value=self.ov.A,
            out=out - out.mean(0),
            sources=everything,
            destinations=everything,
            outs=everything,
            log_competition=log_competition,
        )


def head_circuits(
    model: AttentionOnlyTransformer, head: HeadLike, distance: int | np.integer | str | None = None
) -> HeadCircuits:
    """Return a head's two circuits between tokens, with rotary positions at a `distance`.

    Raises `ValueError` for a missing head, and for a model without tokens at either end or without a softmax.
    """
    cfg = model.cfg
    if (cfg.read_in, cfg.read_out) != ("tokens", "tokens"):
        raise ValueError(
            f"skip-trigrams need a model that reads and writes tokens; this one reads {cfg.read_in} and writes "
            f"{cfg.read_out}."
        )
    if not PHIS[cfg.phi].ranks_as_softmax:
        raise ValueError(
            f"skip-trigrams are ranked by a softmax's attention; this model has phi={cfg.phi!r}. Read its circuits "
            "with aotlens.circuits."
        )
    n_background = max(cfg.n_ctx // 2, 1)
    rotation_distance = None
    if distance is not None and cfg.position_kind.rotates:
        rotation_distance = whole_distance(distance, farthest(cfg, n_background))
    return HeadCircuits(
        head=as_head(head, cfg),
        qk=qk_circuit(model, head, biases=True)
        if rotation_distance is None
        else qk_circuit(model, head, biases=True, distance=rotation_distance),
        ov=ov_circuit(model, head),
        n_background=n_background,
        distance=rotation_distance,
        masked=model.attn_mask is not None,
    )


def competition(
    model: AttentionOnlyTransformer,
    circuits: HeadCircuits,
    distance: int | np.integer | str | None,
    background: Background,
) -> Float64[np.ndarray, " distances"]:
    """Return log C: what a source competes with, at each of the distances that attention is averaged over."""
    if distance is None or circuits.distance is not None:
        return np.log(np.array([circuits.n_background], dtype=np.float64))
    return log_competition(model, circuits.head, distance, circuits.n_background, background)


def normaliser_of(
    model: AttentionOnlyTransformer, circuits: HeadCircuits, background: Background
) -> Float64[np.ndarray, " d_vocab"]:
    """Return N of every destination; with rotary positions, at other distances than the circuit's."""
    if circuits.distance is not None:
        return rotated_background(model, circuits.head, circuits.distance, circuits.n_background, background)
    return log_background(circuits.qk, background_distribution(model, background))


def restrict(
    factors: HeadFactors,
    sources: Sequence[int] | None,
    destinations: Sequence[int] | None,
    outs: Sequence[int] | None,
) -> HeadFactors:
    """Return the factors of some sources, destinations and outs only (ids; None: all)."""
    rows = {name: None if ids is None else np.unique(np.asarray(ids, dtype=np.int64)) for name, ids in
            (("sources", sources), ("destinations", destinations), ("outs", outs))}  # fmt: skip
    if (ids := rows["sources"]) is not None:
        factors = replace(factors, key=_take(factors.key, ids), value=_take(factors.value, ids), sources=ids)
    if (ids := rows["destinations"]) is not None:
        factors = replace(factors, query=_take(factors.query, ids), destinations=ids)
    if (ids := rows["outs"]) is not None:
        factors = replace(factors, out=_take(factors.out, ids), outs=ids)
    return factors


def _take(rows: Tensor, ids: np.ndarray) -> Tensor:
    return rows[torch.from_numpy(ids).to(rows.device)]
