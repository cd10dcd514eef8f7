"""The cells behind one cell, as nodes and edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aotlens.conventions import Head, several
from aotlens.paths.path import SourceName, mlp_name
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

#: A head, its query and its key.
Cell = tuple[Head, int, int]


@dataclass(frozen=True, kw_only=True)
class TraceEdge:
    """One term of a node's query or key side, or all that are left ("rest")."""

    side: Literal["query", "key"]
    kind: Literal["cell", "source", "rest"]
    cell: Cell | None = None
    source: SourceName | None = None
    """token, input, position, mlp or bias."""
    source_layer: int | None = None
    """The layer of an MLP."""
    position: int | None = None
    """The position of the source; None for biases, which stand everywhere."""
    n_terms: int = 1
    """The number of its terms: more than one for the rest."""
    nats: float
    share: float
    """|nats| ÷ Σ|nats| over all terms of its side; for the rest, Σ over its terms."""
    relative: float | None
    """The change of the parent's edge by a change of its scale, relatively and to first order; None at the root, for
    the thresholded softmax, and where a linear score is 0."""

    @property
    def start(self) -> SourceName:
        """The source's name among `source_names`: "token", or "mlp_0"; "" for a cell or a rest."""
        if self.source is None:
            return ""
        return self.source if self.source_layer is None else mlp_name(self.source_layer)


@dataclass(frozen=True, kw_only=True)
class TraceNode:
    """One cell: its contrast, twice as a sum of edges."""

    cell: Cell
    against: int | str | None
    score: float
    contrast: float
    """The sum of either side's edges, nats."""
    attention: float
    """The pattern's entry itself."""
    before_threshold: bool
    """Whether the terms explain the softmax before the threshold."""
    edges: tuple[TraceEdge, ...]
    """The largest of each side, largest first, and the rest."""
    cancellation: tuple[float, float]
    """Σ|term| ÷ |Σ term| of the query side and of the key side: 1 where all agree, large where they cancel; infinite
    for a contrast of 0."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Traced(Result):
    """The base of `Trace`: its nodes, before they are drawn."""

    nodes: tuple[TraceNode, ...]
    str_tokens: tuple[str, ...]
    n_not_followed: int
    """Cells among the edges that are no nodes, since there were `max_nodes` before."""

    @property
    def headline(self) -> str:
        (layer, head), query, key = self.nodes[0].cell
        return f"{several(len(self.nodes), 'cell')} behind head {layer}.{head}, {query} → {key}"

    def name(self, edge: TraceEdge | TraceNode) -> str:
        """Return a cell as "1.0 18 → 4", a source as "token@4" or "mlp_0@4"."""
        if edge.cell is not None:
            (layer, head), query, key = edge.cell
            return f"{layer}.{head} {query} → {key}"
        if not isinstance(edge, TraceEdge) or edge.kind == "rest":
            return "rest"
        return edge.start if edge.position is None else f"{edge.start}@{edge.position}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row an edge: node, side, term, n_terms, nats, share, relative."""
        import pandas as pd

        rows = [
            (self.name(node), edge.side, self.name(edge), edge.n_terms, edge.nats, edge.share, edge.relative)
            for node in self.nodes
            for edge in node.edges
        ]
        return pd.DataFrame(rows, columns=["node", "side", "term", "n_terms", "nats", "share", "relative"])
