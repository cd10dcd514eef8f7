"""The products of every earlier head with every later one, by their factors; what heads write on a text.

With r = z W_O a head's result at a position and s the scale of a later layer's norm there, the layer reads C r / s.
Its moments over positions are Cᵀ W_Oᵀ Σ W_O C with Σ the moment of z / s: `[d_head, d_head]` numbers for each head and
later layer say all of it. The streams themselves, C x / s, are what the later layers read.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

from aotlens.circuits.distance import mean_gram, rotation_at, turned
from aotlens.models import AttentionOnlyTransformer, ModelConfig, folded_norm, folded_output_norm, hook_names
from aotlens.models.traits import require_without
from aotlens.models.weights import double

_BATCH = 8


class Written(NamedTuple):
    """The moments of the heads' writes on a text, and of the streams that layers read there."""

    moments: Float64[Tensor, "layer head later d_head d_head"]
    """Σ of every head for every later layer; 0 for the others."""
    streams: Float64[Tensor, "layer d_model d_model"]
    """The covariance over positions of what each layer reads: C x / s."""
    n_positions: int


@torch.no_grad()
def written_moments(
    model: AttentionOnlyTransformer,
    data: Tensor | str | list[str] | None,
    about_mean: bool,
    attention_mask: Tensor | None = None,
) -> Written | None:
    """Return Σ of every head for every later layer, the streams' covariances, and over how many positions; None without
    `data`.

    `about_mean` takes off the mean over positions: a covariance (divided by n) in place of a second moment. Padding
    does not count. One forward pass; memory of the result and of z of 8 sequences. Raises `ValueError` for no
    position, and where z is not finite.
    """
    if data is None:
        if attention_mask is not None:
            raise ValueError("attention_mask: expected data= to which it belongs, got none.")
        return None
    cfg = model.cfg
    require_without(cfg, "composition on a text", ("norm_output",))
    inputs, mask = model.to_batch(data)
    mask = mask if attention_mask is None else attention_mask.to(inputs.device).bool()
    shape = (cfg.n_layers, cfg.n_heads, cfg.n_layers)
    squares = torch.zeros(*shape, cfg.d_head, cfg.d_head, dtype=torch.float64)
    sums, n = torch.zeros(*shape, cfg.d_head, dtype=torch.float64), 0
    stream_squares = torch.zeros(cfg.n_layers, cfg.d_model, cfg.d_model, dtype=torch.float64)
    stream_sums = torch.zeros(cfg.n_layers, cfg.d_model, dtype=torch.float64)
    streams = [hook_names.activation("resid_pre", layer) for layer in range(cfg.n_layers)]
    scales = [folded_norm(model, layer).scale_hook for layer in range(cfg.n_layers)]
    names = {*scales, *streams, *(hook_names.attn(layer, hook_names.Z) for layer in range(cfg.n_layers))}
    for start in range(0, len(inputs), _BATCH):
        rows = slice(start, start + _BATCH)
        part = None if mask is None else mask[rows]
        _, cache = model.run_with_cache(
            inputs[rows],
            attention_mask=part,
            return_type=None,
            names_filter=lambda name: name in names,
            return_cache_object=False,
        )
        z = torch.stack([double(cache[hook_names.attn(layer, hook_names.Z)]) for layer in range(cfg.n_layers)])
        real = torch.ones(z.shape[1:3], dtype=torch.bool) if part is None else part.cpu()
        z = z[:, real]  # [layer, position, head, d_head]
        n += z.shape[1]
        for layer in range(cfg.n_layers):
            x = folded_norm(model, None).centre(double(cache[streams[layer]])[real])
            x = x / double(cache[scales[layer]])[real] if scales[layer] in cache else x
            stream_squares[layer] += x.T @ x
            stream_sums[layer] += x.sum(0)
        for later in range(1, cfg.n_layers):
            read = z[:later] / double(cache[scales[later]])[real][:, None] if scales[later] in cache else z[:later]
            squares[:later, :, later] += torch.einsum("lphk,lphm->lhkm", read, read)
            sums[:later, :, later] += read.sum(1)
    if not n or not bool(squares.isfinite().all()):
        raise ValueError(f"data: expected finite results of heads at one position at least, got {n} positions.")
    moments = squares / n
    if about_mean:
        mean = sums / n
        whole = moments.diagonal(dim1=-2, dim2=-1).sum(-1)
        moments = moments - mean[..., :, None] * mean[..., None, :]
        # A head that writes a constant has no covariance, only the rounding of z and of the difference.
        rounding = max((16 * torch.finfo(model.dtype).eps) ** 2, 64 * torch.finfo(torch.float64).eps)
        varies = moments.diagonal(dim1=-2, dim2=-1).sum(-1) > rounding * whole
        moments = moments * varies[..., None, None]
    means = stream_sums / n
    covariances = stream_squares / n - means[:, :, None] * means[:, None, :]
    return Written(moments=moments, streams=covariances, n_positions=n)


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
    """The factor turned to a distance; for None, a root of its mean Gram matrix, whose products have the mean squared
    norms."""
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
    """W_Q, W_K or W_V `[layer, head, d_model, d_head]` in float64, with the gain of its own norm; `folded`: behind the
    layer's."""
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
