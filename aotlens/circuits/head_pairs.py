"""The products of every earlier head with every later one, by their factors: norms, scores and singular values."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float64
from torch import Tensor

from aotlens.circuits.distance import mean_gram, rotation_at, turned
from aotlens.models import AttentionOnlyTransformer, ModelConfig, folded_norm, folded_output_norm
from aotlens.models.weights import double

Mode = Literal["q", "k", "v"]


class HeadPairs:
    """The products of every earlier head with every later one, in one mode, float64."""

    norms: Float64[Tensor, "layer head layer head"]
    values: Float64[Tensor, "layer head layer head"]
    earlier: Float64[Tensor, "layer head later singular"]
    """Singular values of the matrix that a head, as the earlier one, writes with for a later layer: W_OV, the same for
    all of them, or on a text Σ^½ W_O, and 0 where the layer is not later."""
    later: Float64[Tensor, "layer head singular"]
    """The singular values of the matrix that a head, as the later one, reads with."""

    writes: Float64[Tensor, "layer head d_head d_model"]
    moments: Float64[Tensor, "layer head later d_head d_head"]
    """AᵀA of the matrix A that a head writes with is writesᵀ moments writes."""
    F: Float64[Tensor, "layer head d_model d_head"]
    grams_S: Float64[Tensor, "layer head d_head d_head"]
    """BBᵀ of the matrix B that a head reads with is F grams_S Fᵀ."""

    def __init__(
        self,
        model: AttentionOnlyTransformer,
        mode: Mode,
        folded: bool,
        moments: Tensor | None,
        distance: int | None = None,
    ) -> None:
        W_V, W_O = _reads(model, "W_V", folded), _writes(model, folded)
        if mode == "v":
            F, S = W_V, W_O.mT  # the later head's product is F Sᵀ
        else:
            W_Q, W_K = _reads(model, "W_Q", folded), _reads(model, "W_K", folded)
            F, S = (W_Q, W_K) if mode == "q" else (W_K, W_Q)
            layers = range(len(S))
            S = torch.stack([_at_distance(model.cfg.at_layer(i), S[i], mode, distance) for i in layers])
        n_layers, n_heads = W_V.shape[:2]
        if moments is None:
            self.earlier = _singular_values(W_V, W_O.mT)[:, :, None].expand(-1, -1, n_layers, -1)
            moments = (W_V.mT @ W_V)[:, :, None].expand(-1, -1, n_layers, -1, -1)
        else:
            values, vectors = torch.linalg.eigh(moments)
            roots = vectors * values.clamp(min=0).sqrt()[..., None, :]
            self.earlier = _singular_values(roots.mT, W_O.mT[:, :, None])
        self.later, grams_S = _singular_values(F, S), S.mT @ S
        squares = torch.zeros(n_layers, n_heads, n_layers, n_heads, dtype=torch.float64)
        for i in range(n_layers):
            for j in range(i + 1, n_layers):
                X = W_O[i][:, None] @ F[j]  # [earlier head, later head, d_head, d_head]
                squares[i, :, j] = ((moments[i, :, j][:, None] @ X) * (X @ grams_S[j])).sum((-2, -1))
        self.writes, self.moments, self.F, self.grams_S = W_O, moments, F, grams_S
        self.norms = squares.clamp(min=0).sqrt()  # rounding can leave −1e-16 where nothing is read
        scale = self.earlier.norm(dim=-1)[..., None] * self.later.norm(dim=-1)
        self.values = torch.where(scale > 0, self.norms / scale, 0.0)


def _at_distance(cfg: ModelConfig, S: Tensor, mode: Mode, distance: int | None) -> Tensor:
    """The factor of a layer's other side, turned to a distance; for None, a root of its Gram matrix's mean over
    them, so that squared norms of products with it are those means."""
    if not cfg.position_kind.rotates:
        return S
    sign = 1 if mode == "q" else -1  # W_Q R_δ W_Kᵀ reads keys as W_K R_δᵀ, and its transpose queries as W_Q R_δ
    if distance is not None:
        turn = rotation_at(cfg, -sign * distance)
        return turned(S, turn)
    values, vectors = torch.linalg.eigh(mean_gram(cfg, S, sign))
    return (vectors * values.clamp(min=0).sqrt()[..., None, :]).mT


def _singular_values(left: Tensor, right: Tensor) -> Tensor:
    """Return the singular values of every left rightᵀ, falling: min(d_model, d_head) of them, from the small side."""
    triangles = [torch.linalg.qr(factor, mode="r").R for factor in (left, right)]
    return torch.linalg.svdvals(triangles[0] @ triangles[1].mT)


def _reads(model: AttentionOnlyTransformer, name: str, folded: bool) -> Tensor:
    """W_Q, W_K or W_V `[layer, head, d_model, d_head]`, in float64; `folded`: behind its layer's norm. The
    gain of a norm of queries or keys is part of their matrix."""
    weight = double(getattr(model, name))
    if name != "W_V" and model.cfg.qk_norm is not None:
        norms = [getattr(block.attn, f"{name[-1].lower()}_norm") for block in model.blocks]
        weight = weight * torch.stack([double(norm.gain(model.cfg.n_heads)) for norm in norms])[:, :, None]
    return torch.stack([folded_norm(model, i).into(W) for i, W in enumerate(weight)]) if folded else weight


def _writes(model: AttentionOnlyTransformer, folded: bool) -> Tensor:
    """W_O `[layer, head, d_head, d_model]`, in float64; `folded`: as every later norm centres it."""
    weight = double(model.W_O)
    if folded and model.cfg.norms_output:
        weight = torch.stack([folded_output_norm(model, i).after(W) for i, W in enumerate(weight)])
    return folded_norm(model, None).centre(weight) if folded else weight
