"""The context of a layer whose scores are asked for: the layers below it, and what its heads read of them.

With patterns and scales of the earlier layers frozen, the stream x before layer l is a sum over paths, and a head's

    query  q = (C x / s · w + b + p) W_Q + b_Q  =  x / s · Q + q_bias + p W_Q,      Q = C w W_Q,  q_bias = b W_Q + b_Q

is linear in it, as is its key; p are positions of kind "qk", which are in no stream. So the layer's queries and keys
are read off the layers below as logits are off the full model: by a map behind a norm, with a bias of its own.

Where queries and keys are rotated, or have a norm of their own, the map is another at each position, Q / s_q · w_q R_i
for query i and K / s_k · w_k R_j for key j, with s_q and s_k frozen too. A score of one query for one key is linear in
each all the same; a mean over keys has no one map.

**Explained variance.** Few pairs of last heads make up where a head attends. A score is a sum over pairs of paths, and
so over groups: the last head of the path to the query × the last head of the path to the key, with paths without heads
by their source (`ScoreExpansion.by_head_pair`). With P_i the softmax of the scores of query i, c_ij the score less its
P_i-mean over keys and c^g_ij the part of group g, less its own P_i-mean,

    R²(S) = 1 − Σ_ij P_ij (c_ij − Σ_{g in S} c^g_ij)² ÷ Σ_ij P_ij c_ij²

says how much of the variance over keys the groups S explain together. It is 1 for all of them, and may be negative for
a few, since groups cancel. Groups are taken one after another, each the one after which the most is explained.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from aotlens.conventions import Head, HeadLike, as_head, require_whole
from aotlens.models import PHIS, AttentionOnlyTransformer, hook_names
from aotlens.models.traits import require_without
from aotlens.paths.expanded import Expanded
from aotlens.paths.frozen import Frozen, head_results, reading_map
from aotlens.paths.path import SourceName
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

#: (rows `[row, d_head]` that a map gives, head, position) → what scores read of them there.
Placing: TypeAlias = Callable[[Tensor, int, int], Tensor]


@dataclass(frozen=True, eq=False, repr=False)
class ScoredLayer:
    """A layer's scores on the prompt, and the maps of its queries and keys; the scale of scores is in the query's."""

    layer: int
    below: Expanded
    """The paths of the layers below, read out as all queries and keys of the layer side by side."""
    scores: Float[Tensor, "head query key"]
    """The model's own `hook_attn_scores`, nats; −∞ where the key is hidden."""
    W_Q: Float[Tensor, "head d_model d_head"]
    W_K: Float[Tensor, "head d_model d_head"]
    q_bias: Float[Tensor, "head d_head"]
    k_bias: Float[Tensor, "head d_head"]
    q_positions: Float[Tensor, "head pos d_head"] | None
    """The terms that positions of kind "qk" add to each query; None for a model that has none."""
    k_positions: Float[Tensor, "head pos d_head"] | None
    placing: tuple[Placing, Placing] | None = None
    """The maps to a head's queries and keys at a position, from what its own maps give: rows `[row, d_head]` by head
    and position; None where positions change nothing and they have no norm."""

    @property
    def source_names(self) -> tuple[SourceName, ...]:
        """The sources of either side: those of the expansion, and "position" also if only queries and keys have it."""
        names = self.below.source_names
        if self.q_positions is None:
            return names
        return (*(name for name in names if name != "bias"), "position", *(name for name in names if name == "bias"))

    @property
    def inverse_scale(self) -> Float[Tensor, " pos"]:
        """1/s of the layer's norm."""
        return self.below.frozen.read.diagonal()


def scored_layer(expansion: Expanded, layer: int) -> ScoredLayer:
    """Return a layer's scores: one forward pass the first time. Raises `ValueError` for a φ without scores."""
    if layer not in expansion.scored_layers:
        expansion.scored_layers[layer] = _scored(expansion, layer)
    scored: ScoredLayer = expansion.scored_layers[layer]
    return scored


@torch.no_grad()
def _scored(expansion: Expanded, layer: int) -> ScoredLayer:
    model, frozen = expansion.model, expansion.frozen
    if not PHIS[model.cfg.phi].needs_query_key:
        raise ValueError(
            f"score: a model with phi={model.cfg.phi!r} has no scores; its pattern is a tensor of the model, the same "
            "on every prompt."
        )
    require_without(model.cfg, "score", ("score_cap",))
    kind = model.cfg.position_kind
    if kind.biases:
        raise ValueError(
            f"score: this model {kind.meaning}, so a score is no sum over pairs of what was written to the stream "
            "alone. aotlens.paths expands its logits, and aotlens.circuits.qk_circuit(model, head, distance=δ) its "
            "scores between tokens."
        )
    dtype, attn = frozen.R.dtype, model.blocks[layer].attn
    scale = model.cfg.score_scale
    names = [hook_names.attn(layer, name) for name in (hook_names.SCORES, hook_names.Q, hook_names.K)]
    _, cache = model.run_with_cache(expansion.inputs, return_type=None, names_filter=names, return_cache_object=False)
    scores, queries, keys = (cache[name][0].to(dtype) for name in names)
    W_Q, q_bias = (scale * part for part in reading_map(model, layer, attn.W_Q, attn.b_Q, dtype))
    W_K, k_bias = reading_map(model, layer, attn.W_K, attn.b_K, dtype)
    q_positions = k_positions = None
    if model.cfg.positions == "qk":
        positions = model.W_pos.detach()[: frozen.n_pos].to(dtype)
        q_positions = scale * (positions @ attn.W_Q.detach().to(dtype))
        k_positions = positions @ attn.W_K.detach().to(dtype)
    below = _below(
        frozen,
        layer,
        R=torch.cat([*W_Q, *W_K], 1),
        out_bias=torch.cat([q_bias.flatten(), k_bias.flatten()]),
        logits=torch.cat([scale * queries.flatten(1), keys.flatten(1)], 1),
    )
    return ScoredLayer(
        layer=layer,
        below=replace(expansion, frozen=below),
        scores=scores,
        W_Q=W_Q,
        W_K=W_K,
        q_bias=q_bias,
        k_bias=k_bias,
        q_positions=q_positions,
        k_positions=k_positions,
        placing=_placing(model, layer, queries, keys),
    )


def _placing(
    model: AttentionOnlyTransformer, layer: int, queries: Tensor, keys: Tensor
) -> tuple[Placing, Placing] | None:
    """Return the maps of queries and keys `[pos, head, d_head]` of the prompt, whose norms are frozen."""
    cfg, attn = model.cfg, model.blocks[layer].attn
    if not cfg.position_kind.rotates and cfg.qk_norm is None:
        return None
    order = model.order(len(queries), layer)

    def placing(norm: Any, parts: Tensor) -> Placing:
        scale = None if norm is None else norm.scale(parts)[..., 0].expand(parts.shape[:2])

        def place(rows: Tensor, head: int, position: int) -> Tensor:
            if norm is not None and scale is not None:
                gain = norm.gain(cfg.n_heads).expand(cfg.n_heads, -1)[head]
                rows = rows / scale[position, head] * gain.to(rows)
            return order.at(position)(rows) if order.rotation is not None else rows

        return place

    norms = (None, None) if cfg.qk_norm is None else (attn.q_norm, attn.k_norm)
    return placing(norms[0], queries), placing(norms[1], keys)


def _below(frozen: Frozen, layer: int, *, R: Tensor, out_bias: Tensor, logits: Tensor) -> Frozen:
    """The first `layer` layers, read out behind the norm of the next."""
    eye = torch.eye(frozen.n_pos, dtype=frozen.R.dtype, device=frozen.R.device)
    return replace(
        frozen,
        patterns=frozen.patterns[:layer],
        inverse_scale=frozen.inverse_scale[:layer],
        W_V=frozen.W_V[:layer],
        v_bias=frozen.v_bias[:layer],
        W_O=frozen.W_O[:layer],
        b_O=frozen.b_O[:layer],
        mlps=None if frozen.mlps is None else frozen.mlps[:layer],
        pool=eye,
        read=eye * frozen.inverse_scale[layer],
        R=R,
        out_bias=out_bias,
        logits=logits,
    )


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
        """Return R² of the best k groups, or of all if they are fewer; `ValueError` for more than were computed."""
        if k > len(self.r2) and len(self.r2) < self.n_groups:
            raise ValueError(f"explained({k}): expected at most {len(self.r2)}, as many groups as were taken.")
        return float(self.r2[min(k, len(self.r2)) - 1])

    def to_frame(self) -> pd.DataFrame:
        """Return one row a group, in the order in which they were taken: query, key, r2 (of all up to here)."""
        query, key = zip(*self.groups, strict=True)
        return data_frame({"query": query, "key": key, "r2": self.r2})


@torch.no_grad()
def explained_variance(expansion: Expanded, head: HeadLike, k: int = 20) -> ExplainedVariance:
    """Compute how much of the variance over keys of a head's scores its best `k` groups explain; definitions as above.

    For a φ that does not normalise, all visible keys weigh the same. With G groups of a side, O(G² · pos² · d_head)
    time, G² · pos² numbers of memory, and k products with these.

    Raises `ValueError` for k below 1, and as `PathExpansion.score`.
    """
    head, k = as_head(head, expansion), require_whole("k", k, 1)
    layer = scored_layer(expansion, head[0])
    if layer.placing is not None:
        raise ValueError(
            "explained_variance: this model's keys are rotated by their positions or have a norm of their own, so that "
            "scores of several keys have no one map; expansion.score(head, query, key) explains them one by one."
        )
    names, queries, keys = _groups(layer, head[1])
    scores = layer.scores[head[1]]
    visible = scores.isfinite()
    weights = visible.to(scores) / visible.sum(-1, keepdim=True)
    if PHIS[expansion.model.cfg.phi].normalises:
        weights = scores.softmax(-1)  # before any threshold
    terms = torch.einsum("aid,bjd->abij", queries, keys).flatten(0, 1)
    terms = terms - (terms * weights).sum(-1, keepdim=True)
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
    frozen, sources, scale = layer.below.frozen, layer.source_names, layer.inverse_scale[:, None]
    results = head_results(frozen) * scale
    names = [*sources, *(f"{number}.{index}" for number in range(frozen.n_layers) for index in range(frozen.n_heads))]
    read = []
    for W, own, positions in (
        (layer.W_Q[head], layer.q_bias[head], layer.q_positions),
        (layer.W_K[head], layer.k_bias[head], layer.k_positions),
    ):
        parts = {name: (x * scale) @ W for name, x in frozen.direct.items()}
        if "bias" in parts:
            parts["bias"] = parts["bias"] + own
        if positions is not None:
            parts["position"] = positions[head]
        read.append(torch.cat([torch.stack([parts[name] for name in sources]), (results @ W).flatten(0, 1)]))
    return names, read[0], read[1]
