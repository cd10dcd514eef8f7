"""Residual streams of a frozen model: by order, by source, with some heads only, and gradients backwards."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.paths.frozen import Frozen
from aotlens.paths.path import SourceName


def order_streams(frozen: Frozen, max_order: int | None = None) -> Float[Tensor, "order pos d_model"]:
    """Return the final stream's parts that passed through exactly k heads, k = 0 … n_layers (or `max_order`).

    After a layer, part k is part k plus the layer's heads applied to part k−1. Biases inside a head join part 1, b_O
    and the output of an MLP part 0. O(L²) head evaluations in place of (H+1)^L paths; memory one stream an order.
    """
    last = frozen.n_layers if max_order is None else min(max_order, frozen.n_layers)
    x = torch.zeros(last + 1, frozen.n_pos, frozen.R.shape[0], dtype=frozen.R.dtype, device=frozen.R.device)
    x[0] = frozen.embedded
    for layer in range(frozen.n_layers):
        reading = min(layer + 1, last)  # parts that exist and whose successor is wanted
        if reading:
            v = frozen.values(layer, x[:reading])
            v[0] += frozen.v_bias[layer][:, None]
            x[1 : reading + 1] += frozen.written(layer, frozen.moved(layer, v))
        x[0] += frozen.added(layer)
    return x


def source_streams(frozen: Frozen) -> dict[SourceName, Float[Tensor, "pos d_model"]]:
    """Return the final stream's parts that come from each source, over all paths; by `source_names`, in their order."""
    n_embedded = len(frozen.sources)
    x = torch.zeros(n_embedded + frozen.n_mlps + 1, *frozen.embedded.shape).to(frozen.embedded)
    x[:n_embedded] = torch.stack([*frozen.sources.values()])
    for layer in range(frozen.n_layers):
        v = frozen.values(layer, x)
        v[-1] += frozen.v_bias[layer][:, None]
        x = x + frozen.written(layer, frozen.moved(layer, v))
        x[-1] += frozen.b_O[layer]
        if frozen.mlps is not None:
            x[n_embedded + layer] = frozen.mlps[layer]
    return dict(zip(frozen.source_names, x, strict=False))  # the last is of the biases, and 0 where there are none


def head_values(frozen: Frozen) -> Float[Tensor, "layer head pos d_head"]:
    """Return the values of every head on the prompt, biases in them."""
    x = frozen.embedded
    values = x.new_empty(frozen.n_layers, frozen.n_heads, frozen.n_pos, frozen.W_O.shape[2])
    for layer in range(frozen.n_layers):
        values[layer] = frozen.values(layer, x) + frozen.v_bias[layer][:, None]
        x = x + frozen.written(layer, frozen.moved(layer, values[layer])) + frozen.added(layer)
    return values


def head_results(frozen: Frozen) -> Float[Tensor, "layer head pos d_model"]:
    """Return the output of every head on the prompt: the sum of all paths that end with it, before the read-out."""
    return (frozen.patterns @ head_values(frozen)) @ frozen.W_O


def masked_streams(frozen: Frozen, keep: Float[Tensor, "variant layer head"]) -> Float[Tensor, "variant pos d_model"]:
    """Return the final stream with each head's output multiplied by `keep`: 0 leaves out every path through the head.

    What MLPs wrote is held.
    """
    x = frozen.embedded.expand(len(keep), -1, -1)
    for layer in range(frozen.n_layers):
        z = frozen.moved(layer, frozen.values(layer, x) + frozen.v_bias[layer][:, None])
        x = x + frozen.written(layer, z * keep[:, layer, :, None, None]) + frozen.added(layer)
    return x


def carried(
    frozen: Frozen, x: Float[Tensor, "*more pos d_model"], first_layer: int
) -> Float[Tensor, "*more pos d_model"]:
    """Carry a part of the stream to the end, through layers `first_layer` on and past them; no biases."""
    for layer in range(first_layer, frozen.n_layers):
        x = x + frozen.written(layer, frozen.moved(layer, frozen.values(layer, x)))
    return x


def root_gradient(
    frozen: Frozen, position: int, column: Float[Tensor, "*more d_model"]
) -> Float[Tensor, "*more pos d_model"]:
    """Return ∂ logit / ∂ final stream: the read-out's row for `position`, times the direction, or each of several."""
    return frozen.read[position][:, None] * column[..., None, :]


def head_gradients(
    frozen: Frozen, layer: int, g: Float[Tensor, "*more pos d_model"]
) -> Float[Tensor, "*more head pos d_head"]:
    """Return ∂ logit / ∂ values of a layer's heads, given g = ∂ logit / ∂ stream after the layer: Pᵀ g W_Oᵀ."""
    y = (g @ frozen.W_O_flat[layer].mT).unflatten(-1, (frozen.n_heads, -1)).transpose(-3, -2)
    return frozen.patterns[layer].mT @ y


def stream_gradients(
    frozen: Frozen, layer: int, u: Float[Tensor, "*more head pos d_head"]
) -> Float[Tensor, "*more head pos d_model"]:
    """Return ∂ logit / ∂ stream before the layer through each head alone: u Vᵀ / s."""
    return (u @ frozen.W_V[layer].mT) * frozen.inverse_scale[layer][:, None]


def total_gradients(
    frozen: Frozen, root: Float[Tensor, "*more pos d_model"]
) -> tuple[Float[Tensor, "layers *more pos d_model"], Float[Tensor, "layer *more head pos d_head"]]:
    """Return the gradients of a number whose gradient in the final stream is `root`: ∂ / ∂ stream before each layer and
    before the read-out, over all paths, and ∂ / ∂ every head's values. Of one number, or of several at once."""
    g, streams = root, [root]
    heads = g.new_empty(frozen.n_layers, *g.shape[:-2], frozen.n_heads, frozen.n_pos, frozen.W_O.shape[2])
    for layer in reversed(range(frozen.n_layers)):
        heads[layer] = head_gradients(frozen, layer, g)
        g = g + stream_gradients(frozen, layer, heads[layer]).sum(-3)
        streams.append(g)
    return torch.stack(streams[::-1]), heads
