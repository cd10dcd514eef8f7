"""The context of a layer whose scores are asked for: the layers below it, and what its heads read of them.

With patterns and scales of the earlier layers frozen, the stream x before layer l is a sum over paths, and a head's

    query  q = (C x / s · w + b + p) W_Q + b_Q  =  x / s · Q + q_bias + p W_Q,      Q = C w W_Q,  q_bias = b W_Q + b_Q

is linear in it, as is its key; p are positions of kind "qk", which are in no stream. So the layer's queries and keys
are read off the layers below as logits are off the full model: by a map behind a norm, with a bias of its own.

Where queries and keys are rotated, or have a norm of their own, the map is another at each position, Q / s_q · w_q R_i
for query i and K / s_k · w_k R_j for key j, with s_q and s_k frozen too. A score of one query for one key is linear in
each all the same; a mean over keys has no one map.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.models import PHIS, AttentionOnlyTransformer, hook_names
from aotlens.models.traits import require_without
from aotlens.paths.expanded import Expanded
from aotlens.paths.frozen import Frozen, reading_map

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
    def inverse_scale(self) -> Float[Tensor, " pos"]:
        """1/s of the layer's norm."""
        return self.below.frozen.read.diagonal()


def scored_layer(expansion: Expanded, layer: int) -> ScoredLayer:
    """Return the scores of a layer: one forward pass the first time, which leaves no hook behind.

    Raises `ValueError` for a φ whose pattern is not made of scores.
    """
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
