"""Where in the sequence heads look, whatever the tokens: at neighbours, at themselves, at either end.

The repeated patterns of *nonlinearity*, Figure 1 (after Clark et al. 2019), as numbers. For a query at position i of a
sequence of n, the attention that goes to

    previous_token    i − 1
    current_token     i
    next_token        i + 1
    first_token       0, a start token or [CLS]
    last_token        n − 1, [SEP] where a sequence ends in one

averaged over the queries 2 ≤ i ≤ n − 3, for which these are five different positions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from aotlens.heads.reading import AnyModel, listen_by_layer, require_tokens
from aotlens.models import hook_names

if TYPE_CHECKING:
    import pandas as pd

PLACES = ("previous_token", "current_token", "next_token", "first_token", "last_token")
ELSEWHERE = "elsewhere"


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionByPlace:
    """Mean attention of every head to each place; what is left of 1 (for softmax) goes elsewhere."""

    shares: Float64[np.ndarray, "place layer head"]
    """In the order of `PLACES`."""

    def __getitem__(self, place: str) -> Float64[np.ndarray, "layer head"]:
        if place not in PLACES:
            raise KeyError(f"{place!r}: expected one of {', '.join(PLACES)}")
        return self.shares[PLACES.index(place)]

    def labels(self, threshold: float | int = 0.5) -> list[list[str]]:
        """For each layer and head the place that gets at least `threshold` of its attention, or `"elsewhere"`."""
        best, share = self.shares.argmax(0), self.shares.max(0)
        return [
            [PLACES[place] if of >= threshold else ELSEWHERE for place, of in zip(places, shares, strict=True)]
            for places, shares in zip(best.tolist(), share.tolist(), strict=True)
        ]

    def to_frame(self) -> pd.DataFrame:
        """One row a head: layer, head, and a column a place."""
        import pandas as pd

        layers, heads = np.indices(self.shares.shape[1:])
        columns = {place: self[place].ravel() for place in PLACES}
        return pd.DataFrame({"layer": layers.ravel(), "head": heads.ravel(), **columns})


def attention_by_place(
    model: AnyModel,
    tokens: Int[Tensor, "batch pos"],
    *,
    batch_size: int = 8,
    progress: Callable[[int, int], None] | None = None,
) -> AttentionByPlace:
    """Mean attention of every head to each place, over sequences of one length (definitions at this module's head).

    `progress(done, total)` is called after each batch. Memory: one layer's patterns for `batch_size` sequences. Raises
    `ValueError` for no sequences, for fewer than 5 tokens and for a model that doesn't read tokens.
    """
    require_tokens(model, "attention by place")
    if len(tokens) == 0 or tokens.shape[1] < 5:
        raise ValueError(
            "expected at least one sequence of 5 tokens or more, so that both neighbours and both ends are apart, got "
            f"{list(tokens.shape)}."
        )
    totals = torch.zeros(len(PLACES), model.cfg.n_layers, model.cfg.n_heads, dtype=torch.float64)

    def add(layer: int, pattern: Tensor) -> None:
        totals[:, layer] += place_sums(pattern).cpu().double()

    for start in range(0, len(tokens), batch_size):
        batch = tokens[start : start + batch_size]
        listen_by_layer(model, batch, lambda layer: hook_names.attn(layer, hook_names.PATTERN), add)
        if progress is not None:
            progress(start + len(batch), len(tokens))
    return AttentionByPlace(shares=(totals / (len(tokens) * (tokens.shape[1] - 4))).numpy())


def place_sums(pattern: Tensor) -> Tensor:
    """`pattern [batch, head, query, key]` → attention to each of `PLACES` summed over batch and queries, [place, head].

    Any model's patterns will do; divide by batch · (pos − 4).
    """
    wide = pattern if pattern.dtype == torch.float64 else pattern.float()  # MPS has no float64
    n_pos = pattern.shape[-1]
    queries = torch.arange(2, n_pos - 2, device=pattern.device)
    keys = (queries - 1, queries, queries + 1, torch.zeros_like(queries), torch.full_like(queries, n_pos - 1))
    return torch.stack([wide[:, :, queries, key].sum((0, -1)) for key in keys])
