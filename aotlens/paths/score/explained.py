"""The variance of a head's scores over keys, as explained by groups: few pairs of last heads make up where it attends.

A score is a sum over pairs of paths, and so over groups: the last head of the path to the query × the last head of the
path to the key, with paths without heads by their source (`ScoreExpansion.by_head_pair`). With P_i the softmax of the
scores of query i, c_ij the score less its P_i-mean over keys and c^g_ij the part of group g, less its own P_i-mean,

    R²(S) = 1 − Σ_ij P_ij (c_ij − Σ_{g in S} c^g_ij)² ÷ Σ_ij P_ij c_ij²

says how much of the variance over keys the groups S explain together. It is 1 for all of them, and may be negative for
a few, since groups cancel. Groups are taken one after another, each the one after which the most is explained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

from aotlens.conventions import Head, HeadLike, as_head
from aotlens.models import PHIS
from aotlens.paths.path import SourceName
from aotlens.paths.score.layer import ScoredLayer, scored_layer
from aotlens.paths.score.side import source_names
from aotlens.paths.streams import head_results
from aotlens.paths.target import whole_number
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.paths.expansion import PathExpansion


@dataclass(frozen=True, kw_only=True, eq=False)
class ExplainedVariance(Result):
    """The variance over keys of one head's scores on a prompt, by the groups that explain most of it."""

    head: Head
    groups: tuple[tuple[str, str], ...]
    """The best groups in the order in which they were taken: the query side's name and the key side's."""
    r2: Float64[np.ndarray, " group"]
    """The share that the groups up to here explain; at most 1, and negative where they explain less than none."""
    variance: float
    """Σ P c² ÷ the number of queries, nats²."""
    cancellation: float
    """Σ_g Σ_ij P |c^g| ÷ Σ_ij P |c|: 1 where all groups agree, large where they cancel; infinite for no variance."""
    n_groups: int
    """The number of groups."""

    @property
    def headline(self) -> str:
        best, name = self.r2[0], " × ".join(self.groups[0])
        return f"{name} explains {best:.0%} of the variance over keys, {len(self.groups)} groups {self.r2[-1]:.0%}"

    def explained(self, k: int) -> float:
        """Return R² of the best k groups; of all where there are fewer. Raises `ValueError` for more than
        were taken."""
        if k > len(self.r2) and len(self.r2) < self.n_groups:
            raise ValueError(f"explained({k}): expected at most {len(self.r2)}, as many groups as were taken.")
        return float(self.r2[min(k, len(self.r2)) - 1])

    def to_frame(self) -> pd.DataFrame:
        """Return one row a group, in the order in which they were taken: query, key, r2 (of all up to here)."""
        import pandas as pd

        query, key = zip(*self.groups, strict=True)
        return pd.DataFrame({"query": query, "key": key, "r2": self.r2})


@torch.no_grad()
def explained_variance(expansion: PathExpansion, head: HeadLike, k: int = 20) -> ExplainedVariance:
    """Compute how much of the variance over keys of a head's scores its best `k` groups explain; definitions as above.

    For a φ that does not normalise, all visible keys weigh the same. With G groups of a side, O(G² · pos² · d_head)
    time, G² · pos² numbers of memory, and k products with these.

    Raises `ValueError` for k below 1, and as `PathExpansion.score`.
    """
    head, k = as_head(head, expansion), whole_number("k", k)
    if k < 1:
        raise ValueError(f"explained_variance: expected k ≥ 1, got {k}.")
    layer = scored_layer(expansion, head[0])
    if layer.placing is not None:
        raise ValueError(
            "explained_variance: this model's keys are rotated by their positions or have a norm of their own, so that "
            "scores of several keys have no one map; expansion.score(head, query, key) explains them one by one."
        )
    names, queries, keys = _groups(layer, head[1])
    scores = layer.scores[head[1]]
    visible, weights = scores.isfinite(), _weights(expansion, scores)
    terms = _centred(torch.einsum("aid,bjd->abij", queries, keys).flatten(0, 1), weights)
    terms = (terms * weights.sqrt())[:, visible]  # [group, cell]
    target = terms.sum(0)
    whole = float(target.square().sum())
    sizes = float((terms.abs() @ weights[visible].sqrt()).sum())
    size = float(target.abs() @ weights[visible].sqrt())
    n = len(names)
    squares, left = terms.square().sum(1), target.clone()
    taken: list[int] = []
    r2: list[float] = []
    for _ in range(min(k, len(terms))):
        gains = 2 * (terms @ left) - squares
        gains[taken] = -torch.inf
        taken.append(int(gains.argmax()))
        left = left - terms[taken[-1]]
        r2.append(1 - float(left.square().sum()) / whole if whole else 1.0)
    return ExplainedVariance(
        head=head,
        groups=tuple((names[group // n], names[group % n]) for group in taken),
        r2=np.array(r2),
        variance=whole / len(scores),
        cancellation=sizes / size if size else float("inf"),
        n_groups=len(terms),
    )


def _groups(layer: ScoredLayer, head: int) -> tuple[list[str], Tensor, Tensor]:
    """The names of the groups of either side, and what each adds to every query and key: `[group, pos, d_head]`."""
    frozen = layer.below.frozen
    parts: dict[SourceName, Tensor] = {**frozen.entering}
    if frozen.has_bias:
        parts["bias"] = frozen.bias_before[-1].expand(frozen.n_pos, -1)
    results = head_results(frozen)
    sources = source_names(layer)
    names = [
        *sources,
        *(f"{each}.{index}" for each in range(frozen.n_layers) for index in range(frozen.n_heads)),
    ]
    sides: list[Any] = [
        (layer.W_Q[head], layer.q_bias[head], None if layer.q_positions is None else layer.q_positions[head]),
        (layer.W_K[head], layer.k_bias[head], None if layer.k_positions is None else layer.k_positions[head]),
    ]
    read = []
    for W, own, positions in sides:
        mine = {name: (x * layer.inverse_scale[:, None]) @ W for name, x in parts.items()}
        if "bias" in mine:
            mine["bias"] = mine["bias"] + own
        if positions is not None:
            mine["position"] = positions
        of_heads = (results * layer.inverse_scale[:, None]) @ W
        read.append(torch.cat([torch.stack([mine[name] for name in sources]), of_heads.flatten(0, 1)]))
    return names, read[0], read[1]


def _weights(expansion: PathExpansion, scores: Float[Tensor, "query key"]) -> Float[Tensor, "query key"]:
    """P: softmax(scores), before any threshold; for a φ that does not normalise, the same for all visible keys."""
    visible: Bool[Tensor, "query key"] = scores.isfinite()
    if PHIS[expansion.model.cfg.phi].normalises:
        return scores.softmax(-1)
    return visible.to(scores) / visible.sum(-1, keepdim=True)


def _centred(
    terms: Float[Tensor, "group query key"], weights: Float[Tensor, "query key"]
) -> Float[Tensor, "group query key"]:
    """Each term less its weighted mean over the keys of its query."""
    return terms - (terms * weights).sum(-1, keepdim=True)
