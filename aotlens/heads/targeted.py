"""How much of a head's attention goes to chosen keys, beside what their distance alone predicts.

For a set of (query, key) pairs T, over the n queries that have one,

    attention   (1/n) Σ_{(q, k) ∈ T} pattern[q, k]
    expected    (1/n) Σ_{(q, k) ∈ T} m(q − k),   m(δ) = the head's mean attention over all pairs at distance δ

A head that looks three tokens back finds many an open bracket there; only attention above `expected` speaks of
brackets. The two agree for a head whose pattern depends on distance alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from aotlens.models import AttentionOnlyTransformer, hook_names

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class TargetedAttention:
    """Mean attention to the chosen keys, `[n_layers, n_heads]`, 0 to 1 for softmax."""

    attention: Float64[np.ndarray, "layer head"]
    expected: Float64[np.ndarray, "layer head"]
    """What the same distances get on average, whatever is there."""
    n_queries: int
    """Queries that have at least one chosen key."""

    @property
    def ratio(self) -> Float64[np.ndarray, "layer head"]:
        """attention ÷ expected."""
        return self.attention / self.expected

    def to_frame(self) -> pd.DataFrame:
        """One row a head: layer, head, attention, expected, ratio."""
        import pandas as pd

        layers, heads = np.indices(self.attention.shape)
        columns = {name: getattr(self, name).ravel() for name in ("attention", "expected", "ratio")}
        return pd.DataFrame({"layer": layers.ravel(), "head": heads.ravel(), **columns})


@torch.no_grad()
def targeted_attention(
    model: AttentionOnlyTransformer,
    tokens: Int[Tensor, "batch pos"],
    targets: Bool[Tensor, "batch query key"],
    *,
    batch_size: int = 8,
) -> TargetedAttention:
    """Every head's attention to `targets` on `tokens`; `targets[b, q, k]` marks key k for query q.

    Memory: one batch's patterns. Raises `ValueError` where shapes disagree, where no pair is marked, and for a pair
    with the key after the query, since distances are counted backwards.
    """
    n_pos = tokens.shape[1]
    if targets.shape != (*tokens.shape, n_pos):
        expected = [*tokens.shape, n_pos]
        raise ValueError(f"targets: expected {expected}, one mask a sequence, got {list(targets.shape)}.")
    if bool(targets.triu(1).any()):
        raise ValueError("targets: expected keys at or before their query, got one after it.")
    pairs = targets.sum(0).cpu()  # [query, key]: how many sequences mark the pair
    n_queries = int(targets.any(-1).sum())
    if n_queries == 0:
        raise ValueError("targets: expected at least one marked pair, got none; take longer or other text.")
    shape = (model.cfg.n_layers, model.cfg.n_heads)
    attention = torch.zeros(*shape, dtype=torch.float64)
    by_distance = torch.zeros(*shape, n_pos, dtype=torch.float64)
    distance = (torch.arange(n_pos)[:, None] - torch.arange(n_pos)).clamp(min=0)

    def listen(pattern: Tensor, hook: object) -> None:
        layer = int(str(getattr(hook, "name", "")).split(".")[1])
        wide = pattern.float().cpu().double()
        attention[layer] += (wide * chosen[:, None]).sum((0, 2, 3))
        lower = wide.sum(0).tril().flatten(1)
        by_distance[layer] += torch.zeros(shape[1], n_pos, dtype=torch.float64).index_add(1, distance.flatten(), lower)

    for start in range(0, len(tokens), batch_size):
        chosen = targets[start : start + batch_size].cpu()
        batch = tokens[start : start + batch_size].to(model.device)
        model.run_with_hooks(batch, fwd_hooks=[(lambda name: name.endswith(hook_names.PATTERN), listen)])
    n_pairs = len(tokens) * torch.arange(n_pos, 0, -1, dtype=torch.float64)  # at each distance
    at_distance = torch.bincount(distance.flatten(), weights=pairs.double().flatten(), minlength=n_pos)
    expected_attention = (by_distance / n_pairs * at_distance).sum(-1) / n_queries
    return TargetedAttention(
        attention=(attention / n_queries).numpy(), expected=expected_attention.numpy(), n_queries=n_queries
    )
