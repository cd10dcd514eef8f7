"""The trace of a head's attention: from one cell back to the cells that made its query and its keys.

A node is one cell (head, query, key), visited once; layers fall, so it ends. Its contrast is split in two ways, by what
made the query and by what made the keys: two separate partitions, each with all terms.
The largest terms that are earlier cells become nodes themselves, against their own default contrast.

An edge into a child says P′_ij v′_j W_O, whatever made P′_ij. With softmax patterns a term of the child is the relative
derivative of that edge by the term's scale, all else frozen (the parent's weights w, values, norm scales): first order.
For linear φ the edge is proportional to the child's score, so the term ÷ the score is what it is of the edge. For the
thresholded softmax no such number exists; its children explain the softmax before the threshold. Shares are taken
within one partition, and weights of different nodes are never multiplied or added.

**Terms, one step back.** With P′ an earlier head's pattern and v′ its values, the stream at position i is its sources
(what the MLPs of earlier layers wrote there among them), Σ b_O and Σ_h′ Σ_m P′_im v′_m W_O. The query reads it at i;
the key side reads it at every visible key k, with the contrast's coefficient δ_kj − w_k: the cells at k = j alone are
not the contrast.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import HeadLike, require_between, require_whole
from aotlens.models import PHIS
from aotlens.paths.frozen import Frozen, head_values
from aotlens.paths.path import Path, SourceName
from aotlens.paths.score.expansion import ScoreExpansion, score_of
from aotlens.paths.score.side import Against, ScoreSide
from aotlens.paths.score.traced import Trace, TraceEdge, TraceNode

if TYPE_CHECKING:
    from aotlens.paths.expanded import Expanded


@dataclass(frozen=True, eq=False)
class Partition:
    """A contrast as a sum of terms of one side, each times the whole other side; nats."""

    sources: dict[SourceName, Float[Tensor, " pos"]]
    """Token, input, positions and what the MLPs of the layers below wrote, by where they stand."""
    bias: float
    """Σ b_O of the layers below, the norm's bias and the head's own, at all positions together: on the key side of a
    contrast the head's own cancels between keys."""
    cells: Float[Tensor, "layer head query key"]
    """The contribution of every earlier cell; its query is the position that the side reads."""

    @property
    def total(self) -> float:
        """The contrast, the sum of all terms."""
        return float(sum(x.sum() for x in self.sources.values())) + self.bias + float(self.cells.sum())

    @property
    def size(self) -> float:
        """Σ |term|, the sum of the sizes of all terms."""
        sources = float(sum(x.abs().sum() for x in self.sources.values()))
        return sources + abs(self.bias) + float(self.cells.abs().sum())


def partition(
    frozen: Frozen, side: ScoreSide, other: Float[Tensor, " d_head"], values: Float[Tensor, "layer head pos d_head"]
) -> Partition:
    """Return the terms of one side, from all of the `other` side and the values of all heads below. O(L H pos² + pos ·
    L · d_model · d_head) time."""
    direction, rows, layer = side.W @ other, side.rows, side.layer.layer
    entering = side.layer.below.frozen.entering
    sources: dict[SourceName, Tensor] = {name: rows * (x @ direction) for name, x in entering.items()}
    if side.positions is not None:
        sources["position"] = side.weights * (side.positions @ other)
    bias = rows.sum() * (frozen.bias_before[layer] @ direction) + side.own_bias @ other
    brought = torch.einsum("lhpk,lhk->lhp", values[:layer], frozen.W_O[:layer] @ direction)
    cells = rows[:, None] * frozen.patterns[:layer] * brought[:, :, None]
    return Partition(sources=sources, bias=float(bias), cells=cells)


_SIDES: tuple[Literal["query", "key"], ...] = ("query", "key")


@torch.no_grad()
def trace_of(
    expansion: Expanded,
    head: HeadLike | None,
    query: Any,
    key: Any,
    against: Against,
    *,
    max_edges: Any,
    min_share: float,
    max_nodes: Any,
) -> Trace:
    """See `PathExpansion.trace`. One forward pass a layer, once; each node costs as `partition`, twice."""
    max_edges, max_nodes = require_whole("max_edges", max_edges, 1), require_whole("max_nodes", max_nodes, 1)
    require_between("min_share", min_share, 0, 1)
    values = head_values(expansion.frozen)
    root = score_of(expansion, head, query, key, against)
    waiting, seen = deque([(root.head, root.query, root.key)]), {(root.head, root.query, root.key)}
    nodes: list[TraceNode] = []
    while waiting and len(nodes) < max_nodes:
        cell = waiting.popleft()
        score = root if not nodes else score_of(expansion, *cell, "default")
        node = _node(expansion, score, values, max_edges, min_share, is_root=not nodes)
        nodes.append(node)
        for edge in node.edges:
            if edge.cell is not None and edge.cell not in seen:
                seen.add(edge.cell)
                waiting.append(edge.cell)
    return Trace(nodes=tuple(nodes), str_tokens=expansion.str_tokens, n_not_followed=len(waiting))


def _node(
    expansion: Expanded, score: ScoreExpansion, values: Tensor, max_edges: int, min_share: float, *, is_root: bool
) -> TraceNode:
    frozen, phi = expansion.frozen, PHIS[expansion.model.cfg.phi]
    wholes = [side.by_order().sum(0) for side in score.sides]
    per_nat: float | None = 1.0 if phi.normalises else (1 / score.score if score.score else None)
    if is_root or score.contrast.before_threshold:
        per_nat = None
    edges: list[TraceEdge] = []
    cancellation = []
    for index, name in enumerate(_SIDES):
        parts = partition(frozen, score.sides[index], wholes[1 - index], values)
        edges += _edges(name, parts, max_edges, min_share, per_nat)
        cancellation.append(parts.size / abs(parts.total) if parts.total else float("inf"))
    return TraceNode(
        cell=(score.head, score.query, score.key),
        against=score.against,
        score=score.score,
        contrast=score.value,
        attention=float(frozen.patterns[(*score.head, score.query, score.key)]),
        before_threshold=score.contrast.before_threshold,
        edges=tuple(edges),
        cancellation=(cancellation[0], cancellation[1]),
    )


def _edges(
    side: Literal["query", "key"], parts: Partition, max_edges: int, min_share: float, per_nat: float | None
) -> list[TraceEdge]:
    """The largest terms of a partition, and the rest as one edge."""
    names = [*parts.sources]
    n_pos = parts.cells.shape[-1]
    flat = torch.cat([*parts.sources.values(), parts.cells.new_tensor([parts.bias]), parts.cells.flatten()])
    size = parts.size
    largest = flat.abs().topk(min(max_edges, len(flat))).indices.tolist()
    terms = [i for i in largest if float(flat[i]) and abs(float(flat[i])) >= min_share * size]

    def edge(i: int) -> TraceEdge:
        nats = float(flat[i])
        numbers: dict[str, Any] = {
            "side": side,
            "nats": nats,
            "share": abs(nats) / size,
            "relative": None if per_nat is None else nats * per_nat,
        }
        if i < len(names) * n_pos:
            start = Path(names[i // n_pos])
            place: dict[str, Any] = {"source_layer": start.source_layer, "position": i % n_pos}
            return TraceEdge(kind="source", source=start.source, **place, **numbers)
        if i == len(names) * n_pos:
            return TraceEdge(kind="source", source="bias", **numbers)
        indices = torch.unravel_index(torch.tensor(i - len(names) * n_pos - 1), parts.cells.shape)
        layer, head, query, key = (int(part) for part in indices)
        return TraceEdge(kind="cell", cell=((layer, head), query, key), **numbers)

    edges = [edge(i) for i in terms]
    n_rest = int(flat.count_nonzero()) - len(terms)
    if n_rest:
        nats = float(flat.sum()) - sum(each.nats for each in edges)
        share = max(0.0, 1.0 - sum(each.share for each in edges))
        relative = None if per_nat is None else nats * per_nat
        edges.append(TraceEdge(side=side, kind="rest", n_terms=n_rest, nats=nats, share=share, relative=relative))
    return edges
