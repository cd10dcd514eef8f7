"""The importance to the loss of paths of each length, layers and heads (Elhage et al. 2021, "Term importance
analysis").

Their algorithm runs the model once, freezes every attention pattern, and then measures the loss of a model that has
only the paths with at most k heads: what order k adds is the loss of order ≤ k−1 minus the loss of order ≤ k. Norm
scales are frozen too, so that the last order is the model itself: exactly without a norm, and to rounding with one.

What MLPs wrote is held in every variant, whatever they had read, so that k counts the heads after an MLP and a layer
or head that is left out keeps what it did by way of MLPs. For the effect through them, `aotlens.heads.ablate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from aotlens.conventions import Progress
from aotlens.data import IGNORED
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.models.traits import NOT_LINEAR
from aotlens.paths.frozen import Frozen, freeze, masked_streams, order_streams
from aotlens.paths.target import output
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

_CHUNK_BYTES = 256 * 10**6


@dataclass(frozen=True, kw_only=True, eq=False)
class TermImportance(Result):
    """Losses in nats a target, over all that count: next tokens, or the labels given as `targets`."""

    loss: float
    """The loss of the model itself."""
    n_tokens: int
    """The number of predictions that the losses are over."""
    loss_up_to: Float64[np.ndarray, " order"]
    """The loss with all paths of at most k heads, k = 0 … n_layers."""
    layers_alone: Float64[np.ndarray, " layer"]
    """The loss with the paths without heads and those of one layer's heads only."""
    layers_without: Float64[np.ndarray, " layer"]
    """The loss with all paths but those through the layer."""
    heads_alone: Float64[np.ndarray, "layer head"]
    heads_without: Float64[np.ndarray, "layer head"]

    @property
    def headline(self) -> str:
        return f"loss {self.loss_up_to[0]:.3f} nats a token without heads, {self.loss:.3f} with all"

    @property
    def by_order(self) -> Float64[np.ndarray, " order"]:
        """The decrease of the loss by the paths with exactly k heads, given the shorter ones; k = 1 … n_layers."""
        return self.loss_up_to[:-1] - self.loss_up_to[1:]

    @property
    def alone(self) -> Float64[np.ndarray, "layer head"]:
        """The decrease of the loss by a head where there is no other."""
        return self.loss_up_to[0] - self.heads_alone

    @property
    def given_the_rest(self) -> Float64[np.ndarray, "layer head"]:
        """The decrease of the loss by a head where all others are there."""
        return self.heads_without - self.loss_up_to[-1]

    @property
    def layer_alone(self) -> Float64[np.ndarray, " layer"]:
        """The importance `alone` of whole layers."""
        return self.loss_up_to[0] - self.layers_alone

    @property
    def layer_given_the_rest(self) -> Float64[np.ndarray, " layer"]:
        """The importance `given_the_rest` of whole layers."""
        return self.layers_without - self.loss_up_to[-1]

    def to_frame(self) -> pd.DataFrame:
        """Return one row a term: kind (order, layer or head), name, alone and given_the_rest, nats a token.

        For an order, `alone` is what it takes off the loss given the shorter ones, and the other is missing. Layers and
        heads are missing where they were not asked for.
        """
        rows = [("order", str(k + 1), float(v), float("nan")) for k, v in enumerate(self.by_order)]
        columns = ["kind", "name", "alone", "given_the_rest"]
        if np.isnan(self.heads_alone).any():
            return data_frame(rows, columns=columns)
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
        return data_frame(rows, columns=columns)


@torch.no_grad()
def term_importance(
    model: AttentionOnlyTransformer,
    tokens: Tensor | str | list[str],
    *,
    targets: Tensor | None = None,
    heads: bool = True,
    progress: Progress | None = None,
) -> TermImportance:
    """Run Elhage et al.'s ablation algorithm on `tokens`, one prompt (a text, ids) or several; see the head of this
    module.

    `heads=False` leaves out layers and heads (their arrays are NaN), which cost 2·(L + L·H) frozen passes a sequence;
    orders cost O(L²) head evaluations. `progress(done, total)` is called after each sequence.

    `targets` are labels that the loss is of in place of the next tokens, as the model's own forward takes them: ids
    `[batch, pos]` (−100 is ignored, and a sequence of nothing else is left out), classes `[batch]`, or vectors (squared
    errors then, not nats). They are not a `target`, one output whose logit `expand` takes apart.

    Raises `ValueError` for texts of different lengths, a model that does not predict its next token
    without `targets`, and where no target of any sequence counts.
    """
    require_ours(model, "term_importance", without=NOT_LINEAR)
    cfg = model.cfg
    inputs = model.to_rows(tokens, "term_importance")
    if targets is not None and isinstance(tokens, Tensor) and tokens.ndim < inputs.ndim:
        targets = targets[None]
    if not len(inputs) or (targets is not None and len(targets) != len(inputs)):
        raise ValueError(
            "term_importance: expected at least one sequence, and as many rows of targets; got "
            f"{list(inputs.shape)} and {None if targets is None else list(targets.shape)}."
        )
    masks = _masks(cfg.n_layers, cfg.n_heads)
    total, orders, subsets, n_targets = 0.0, np.zeros(cfg.n_layers + 1), np.zeros(len(masks)), 0
    for row in range(len(inputs)):
        x = inputs[row : row + 1]
        labels = None if targets is None else targets[row : row + 1].to(model.device)
        loss = _Loss(model, x, labels)
        if loss.n or targets is None:
            frozen = freeze(model, x)
            total += loss.n * loss.of(frozen.logits)
            orders += loss.n * _losses(frozen, order_streams(frozen).cumsum(0), loss)
            if heads:
                chunk = max(1, _CHUNK_BYTES // (frozen.logits.numel() * frozen.logits.element_size()))
                streams = (masked_streams(frozen, part.to(frozen.R)) for part in masks.split(chunk))
                subsets += loss.n * np.concatenate([_losses(frozen, part, loss) for part in streams])
            n_targets += loss.n
        if progress is not None:
            progress(row + 1, len(inputs))
    if not n_targets:
        raise ValueError("term_importance: every target is ignored (-100): there is nothing to average.")
    n, n_layers, n_heads = n_targets, cfg.n_layers, cfg.n_heads
    subsets = subsets / n if heads else np.full(len(masks), np.nan)
    layers_alone, layers_without, heads_alone, heads_without = np.split(
        subsets, np.cumsum([n_layers, n_layers, n_layers * n_heads])
    )
    return TermImportance(
        loss=total / n,
        n_tokens=n,
        loss_up_to=orders / n,
        layers_alone=layers_alone,
        layers_without=layers_without,
        heads_alone=heads_alone.reshape(n_layers, n_heads),
        heads_without=heads_without.reshape(n_layers, n_heads),
    )


def _masks(n_layers: int, n_heads: int) -> Tensor:
    """Return masks of heads `[variant, layer, head]`: each layer alone, all but each, each head alone, all but each."""
    layers = torch.eye(n_layers)[:, :, None].expand(-1, -1, n_heads)
    heads = torch.eye(n_layers * n_heads).unflatten(1, (n_layers, n_heads))
    return torch.cat([layers, 1 - layers, heads, 1 - heads])


class _Loss:
    """The model's own loss of one prompt, from logits that are not its own, and over how many targets it is."""

    def __init__(self, model: AttentionOnlyTransformer, x: Tensor, targets: Tensor | None) -> None:
        self.model, self.x, self.targets = model, x, targets
        if targets is None:
            self.n = x.shape[1] - 1
        else:
            self.n = targets[..., 0].numel() if model.cfg.read_out == "vectors" else int((targets != IGNORED).sum())

    def of(self, logits: Tensor) -> float:
        """Logits as `Frozen` has them: `[pos, out]`, of pooled classes `[1, out]`."""
        cfg = self.model.cfg
        whole = logits if cfg.read_out == "classes" and cfg.pooling is not None else logits[None]
        return float(self.model._loss(whole, self.x, self.targets, None, False))


def _losses(frozen: Frozen, streams: Tensor, loss: _Loss) -> np.ndarray:
    """The loss of each of several final streams `[variant, pos, d_model]`, biases included."""
    return np.array([loss.of(output(frozen, stream[None], None, bias_row=0)[0]) for stream in streams])
