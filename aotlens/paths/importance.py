"""How much paths of each length, layers and heads matter to the loss (Elhage et al. 2021, "Term importance analysis").

Their algorithm runs the model once, freezes every attention pattern, and then measures the loss of a model that has
only the paths with at most k heads: what order k adds is the loss of order ≤ k−1 minus the loss of order ≤ k. Norm
scales are frozen too, so that the last order is the model itself: exactly without a norm, and to rounding with one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float64, Int
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer
from aotlens.paths.frozen import Frozen, freeze
from aotlens.paths.streams import masked_streams, order_streams
from aotlens.paths.target import output

if TYPE_CHECKING:
    import pandas as pd

_CHUNK_BYTES = 256 * 10**6


@dataclass(frozen=True, kw_only=True, eq=False)
class TermImportance:
    """Losses in nats a token, next-token, over all tokens given."""

    loss: float
    """Of the model itself."""
    n_tokens: int
    """How many predictions the losses are over."""
    loss_up_to: Float64[np.ndarray, " order"]
    """With all paths of at most k heads, k = 0 … n_layers."""
    layers_alone: Float64[np.ndarray, " layer"]
    """With the paths without heads and those of one layer's heads only."""
    layers_without: Float64[np.ndarray, " layer"]
    """With all paths but those through the layer."""
    heads_alone: Float64[np.ndarray, "layer head"]
    heads_without: Float64[np.ndarray, "layer head"]

    @property
    def by_order(self) -> Float64[np.ndarray, " order"]:
        """What the paths with exactly k heads take off the loss, given the shorter ones; k = 1 … n_layers."""
        return self.loss_up_to[:-1] - self.loss_up_to[1:]

    @property
    def alone(self) -> Float64[np.ndarray, "layer head"]:
        """What a head takes off the loss where there is no other."""
        return self.loss_up_to[0] - self.heads_alone

    @property
    def given_the_rest(self) -> Float64[np.ndarray, "layer head"]:
        """What a head takes off the loss where all others are there."""
        return self.heads_without - self.loss_up_to[-1]

    @property
    def layer_alone(self) -> Float64[np.ndarray, " layer"]:
        """`alone` of whole layers."""
        return self.loss_up_to[0] - self.layers_alone

    @property
    def layer_given_the_rest(self) -> Float64[np.ndarray, " layer"]:
        """`given_the_rest` of whole layers."""
        return self.layers_without - self.loss_up_to[-1]

    def to_frame(self) -> pd.DataFrame:
        """One row a term: kind (order, layer or head), name, alone and given_the_rest, nats a token.

        For an order, `alone` is what it takes off the loss given the shorter ones, and the other is missing. Layers and
        heads are missing where they were not asked for.
        """
        import pandas as pd

        rows = [("order", str(k + 1), float(v), float("nan")) for k, v in enumerate(self.by_order)]
        columns = ["kind", "name", "alone", "given_the_rest"]
        if np.isnan(self.heads_alone).any():
            return pd.DataFrame(rows, columns=columns)
        n_layers, n_heads = self.heads_alone.shape
        rows += [
            ("layer", str(layer), float(self.layer_alone[layer]), float(self.layer_given_the_rest[layer]))
            for layer in range(n_layers)
        ]
        rows += [
            ("head", f"{layer}.{head}", float(self.alone[layer, head]), float(self.given_the_rest[layer, head]))
            for layer in range(n_layers)
            for head in range(n_heads)
        ]
        return pd.DataFrame(rows, columns=columns)


@torch.no_grad()
def term_importance(
    model: AttentionOnlyTransformer,
    tokens: Int[Tensor, "batch pos"] | Int[Tensor, " pos"] | str,
    *,
    heads: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> TermImportance:
    """Elhage et al.'s ablation algorithm on `tokens`, one prompt (a text, ids) or several; see the head of this module.

    `heads=False` leaves out layers and heads (their arrays are NaN), which cost 2·(L + L·H) frozen passes a sequence;
    orders cost O(L²) head evaluations. `progress(done, total)` is called after each sequence.

    Raises `ValueError` for a model with MLPs, one that does not predict its next token, and fewer than 2 positions.
    """
    cfg = model.cfg
    if cfg.read_in != "tokens" or cfg.read_out != "tokens" or model.sees_later_keys:
        raise ValueError(
            "term_importance: expected a causal model from tokens to tokens; only that has a next-token loss."
        )
    ids: Tensor = model.to_tokens(tokens) if isinstance(tokens, str) else tokens
    if ids.ndim == 1:
        ids = ids[None]
    if ids.shape[1] < 2 or len(ids) == 0:
        raise ValueError(f"term_importance: expected sequences of at least 2 tokens, got {list(ids.shape)}.")
    masks = _masks(cfg.n_layers, cfg.n_heads)
    total, orders, subsets = 0.0, np.zeros(cfg.n_layers + 1), np.zeros(len(masks))
    for row in range(len(ids)):
        frozen = freeze(model, ids[row])
        targets = ids[row, 1:].to(frozen.R.device).long()
        total += float(F.cross_entropy(frozen.logits[:-1], targets))
        orders += _losses(frozen, order_streams(frozen).cumsum(0), targets)
        if heads:
            subsets += _subset_losses(frozen, masks, targets)
        if progress is not None:
            progress(row + 1, len(ids))
    n, n_layers, n_heads = len(ids), cfg.n_layers, cfg.n_heads
    subsets = subsets / n if heads else np.full(len(masks), np.nan)
    layers_alone, layers_without, heads_alone, heads_without = np.split(
        subsets, np.cumsum([n_layers, n_layers, n_layers * n_heads])
    )
    return TermImportance(
        loss=total / n,
        n_tokens=n * (ids.shape[1] - 1),
        loss_up_to=orders / n,
        layers_alone=layers_alone,
        layers_without=layers_without,
        heads_alone=heads_alone.reshape(n_layers, n_heads),
        heads_without=heads_without.reshape(n_layers, n_heads),
    )


def _masks(n_layers: int, n_heads: int) -> Tensor:
    """Which heads are there `[variant, layer, head]`: each layer alone, all but each, each head alone, all but each."""
    layers = torch.eye(n_layers)[:, :, None].expand(-1, -1, n_heads)
    heads = torch.eye(n_layers * n_heads).unflatten(1, (n_layers, n_heads))
    return torch.cat([layers, 1 - layers, heads, 1 - heads])


def _subset_losses(frozen: Frozen, masks: Tensor, targets: Tensor) -> np.ndarray:
    chunk = max(1, _CHUNK_BYTES // (frozen.logits.numel() * frozen.logits.element_size()))
    losses = [_losses(frozen, masked_streams(frozen, part.to(frozen.R)), targets) for part in masks.split(chunk)]
    return np.concatenate(losses)


def _losses(frozen: Frozen, streams: Tensor, targets: Tensor) -> np.ndarray:
    """The mean next-token loss of each of several final streams `[variant, pos, d_model]`, biases included."""
    losses = []
    for stream in streams:
        logits = output(frozen, stream[None], None, bias_row=0)[0]
        losses.append(float(F.cross_entropy(logits[:-1], targets)))
    return np.array(losses)
