"""The writes of heads on a text, as later layers are given them: second moments over positions.

With r = z W_O a head's result at a position and s the scale of a later layer's norm there, the layer is given C r / s.
Its moments over positions are Cᵀ W_Oᵀ Σ W_O C with Σ the moment of z / s: `[d_head, d_head]` numbers for each head and
later layer say all of it. The streams themselves, C x / s, are what the later layers read.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float64
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, folded_norm, hook_names
from aotlens.models.traits import require_without
from aotlens.models.weights import double

_BATCH = 8


class Written(NamedTuple):
    """The moments of the heads' writes on a text, and of the streams that layers read there."""

    moments: Float64[Tensor, "layer head later d_head d_head"]
    """Σ of every head for every later layer; 0 for the others."""
    streams: Float64[Tensor, "layer d_model d_model"]
    """The covariance over positions of what each layer is given: C x / s."""
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
            given = z[:later] / double(cache[scales[later]])[real][:, None] if scales[later] in cache else z[:later]
            squares[:later, :, later] += torch.einsum("lphk,lphm->lhkm", given, given)
            sums[:later, :, later] += given.sum(1)
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
