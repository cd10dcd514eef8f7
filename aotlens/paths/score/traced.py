"""The cells behind one cell, as nodes and edges; as a layered graph, with sources at the left, then cells by layer, and
the requested cell at the right; as files: JSON, SVG, and one HTML page with both and a table, which loads nothing.
"""

from __future__ import annotations

import html
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from aotlens.conventions import Head, several
from aotlens.paths.path import SourceName, mlp_name, place_words
from aotlens.results import Result, data_frame

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

    @property
    def summary(self) -> str:
        """Its score and its contrast."""
        softmax = ", of the softmax before the threshold" if self.before_threshold else ""
        return f"score {self.score:+.3f}, contrast {self.contrast:+.3f} nats{softmax}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace(Result):
    """The cells behind one cell, and what each is made of; the first node is the requested cell."""

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
        rows = [
            (self.name(node), edge.side, self.name(edge), edge.n_terms, edge.nats, edge.share, edge.relative)
            for node in self.nodes
            for edge in node.edges
        ]
        return data_frame(rows, columns=["node", "side", "term", "n_terms", "nats", "share", "relative"])

    def layout(self) -> Layout:
        """Return the boxes and links of the layered graph."""
        return layout_of(self)

    def to_json(self) -> str:
        """Return everything, as JSON."""
        return trace_json(self)

    def to_svg(self) -> str:
        """Return the layered graph as an SVG drawing."""
        return trace_svg(self)

    def to_html(self) -> str:
        """Return one HTML file: the drawing, a table of all edges, and the JSON."""
        return trace_html(self)


@dataclass(frozen=True, kw_only=True)
class Box:
    """A cell or a source."""

    title: str
    detail: str
    """The tokens of a cell; of a source the token that stands there."""
    column: int
    row: float
    """The height, from 0 at the top to 1."""
    kind: str
    """`cell` or `source`."""
    cell: Cell | None = None
    """The cell that it is; None for a source."""
    notes: tuple[str, ...] = ()
    """The facts about it, in sentences: of a cell that was followed its score and how much either side cancels; then
    each side that it is a term of, with its share there."""


@dataclass(frozen=True, kw_only=True)
class Link:
    """An edge of the trace, from the box that it comes from to the cell that it is a term of."""

    start: int
    end: int
    side: str
    nats: float
    share: float


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The parts to draw; rests are not."""

    boxes: tuple[Box, ...]
    links: tuple[Link, ...]
    n_columns: int


def layout_of(trace: Trace) -> Layout:
    """Lay out boxes in columns of layers, in a column in the order in which the trace came by them."""
    cells = [each for node in trace.nodes for each in (node.cell, *(edge.cell for edge in node.edges))]
    layers = sorted({cell[0][0] for cell in cells if cell is not None})
    contents: dict[str, tuple[str, str, int, Cell | None]] = {}
    notes: dict[str, list[str]] = {}

    def place(each: TraceNode | TraceEdge) -> str:
        name = trace.name(each)
        if each.cell is not None:
            (layer, head), query, key = each.cell
            detail = f"{place_words(trace.str_tokens, query)} → {place_words(trace.str_tokens, key)}"
            contents.setdefault(name, (f"{layer}.{head}", detail, 1 + layers.index(layer), each.cell))
        else:
            position = getattr(each, "position", None)
            detail = "" if position is None else place_words(trace.str_tokens, position)
            contents.setdefault(name, (getattr(each, "start", ""), detail, 0, None))
        return name

    ends = []
    for node in trace.nodes:
        end = place(node)
        sides = zip(("query", "key"), node.cancellation, strict=True)
        notes.setdefault(end, [])[:0] = [node.summary, *(f"{side} side: {cancelling(value)}" for side, value in sides)]
        for edge in node.edges:
            if edge.kind != "rest":
                start = place(edge)
                ends.append((start, end, edge))
                notes.setdefault(start, []).append(
                    f"{edge.nats:+.3f} nats, {edge.share:.0%} of the {edge.side} side of {end}"
                )
    names = [*contents]
    columns = [column for _, _, column, _ in contents.values()]
    boxes = []
    for i, (name, (title, detail, column, cell)) in enumerate(contents.items()):
        place_in_column, n_in_column = columns[:i].count(column), columns.count(column)
        row = (place_in_column + 0.5) / n_in_column
        kind = "source" if cell is None else "cell"
        boxes.append(
            Box(title=title, detail=detail, column=column, row=row, kind=kind, cell=cell, notes=tuple(notes[name]))
        )
    links = [
        Link(start=names.index(start), end=names.index(end), side=edge.side, nats=edge.nats, share=edge.share)
        for start, end, edge in ends
    ]
    return Layout(boxes=tuple(boxes), links=tuple(links), n_columns=1 + len(layers))


def cancelling(value: float) -> str:
    """Say Σ|term| ÷ |Σ term| of a side in words."""
    if not math.isfinite(value):
        return "its terms cancel altogether"
    return f"its terms are {value:.1f} times in size what they add up to"


SCHEMA = 1
_WIDTH, _HEIGHT, _BOX_WIDTH, _BOX_HEIGHT, _MARGIN = 280, 46, 210, 34, 16  # pixels; a column, a row, a box
#: The query side's edges, and the key side's.
COLOURS = {"query": "#b35c00", "key": "#2166ac"}


def trace_json(trace: Trace) -> str:
    """Return `{"schema", "tokens", "n_not_followed", "nodes": [{"cell", …, "edges": […]}]}`; infinity is null."""
    record = {
        "schema": SCHEMA,
        "tokens": list(trace.str_tokens),
        "n_not_followed": trace.n_not_followed,
        "nodes": [_node(node) for node in trace.nodes],
    }
    return json.dumps(record, ensure_ascii=False, indent=1, allow_nan=False)


def _node(node: TraceNode) -> dict[str, Any]:
    query, key = (value if math.isfinite(value) else None for value in node.cancellation)
    names = ("against", "score", "contrast", "attention", "before_threshold")
    return {
        **_cell(node),
        **{name: getattr(node, name) for name in names},
        "cancellation": {"query": query, "key": key},
        "edges": [_edge(edge) for edge in node.edges],
    }


def _edge(edge: TraceEdge) -> dict[str, Any]:
    names = ("source", "source_layer", "position", "n_terms", "nats", "share", "relative")
    return {"side": edge.side, "kind": edge.kind, **_cell(edge), **{name: getattr(edge, name) for name in names}}


def _cell(each: TraceNode | TraceEdge) -> dict[str, Any]:
    if each.cell is None:
        return {}
    head, query, key = each.cell
    return {"head": list(head), "query": query, "key": key}


def trace_svg(trace: Trace) -> str:
    """Draw layers as columns from left to right; an edge's width is its share of its side, dashed if it is negative."""
    layout = layout_of(trace)
    columns = [box.column for box in layout.boxes]
    height = _HEIGHT * max(columns.count(column) for column in set(columns)) + 2 * _MARGIN + 24
    width = _WIDTH * layout.n_columns + 2 * _MARGIN

    def corner(box: Box) -> tuple[float, float]:
        return float(_MARGIN + _WIDTH * box.column), _MARGIN + box.row * (height - 2 * _MARGIN - 24) - _BOX_HEIGHT / 2

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f"<title>{html.escape(trace.headline)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for link in layout.links:
        (x, y), (end_x, end_y) = corner(layout.boxes[link.start]), corner(layout.boxes[link.end])
        x, y, end_y = x + _BOX_WIDTH, y + _BOX_HEIGHT / 2, end_y + _BOX_HEIGHT * (0.3 if link.side == "query" else 0.7)
        middle, dash = (x + end_x) / 2, ' stroke-dasharray="4 3"' if link.nats < 0 else ""
        parts.append(
            f'<path d="M{x:.1f},{y:.1f} C{middle:.1f},{y:.1f} {middle:.1f},{end_y:.1f} {end_x:.1f},{end_y:.1f}" '
            f'fill="none" stroke="{COLOURS[link.side]}" stroke-width="{0.6 + 8 * link.share:.2f}" stroke-opacity="0.6"'
            f"{dash}><title>{link.side}: {link.nats:+.3f} nats, {link.share:.0%}</title></path>"
        )
    for box in layout.boxes:
        x, y = corner(box)
        fill = "#f2f2f2" if box.kind == "cell" else "#fffbe6"
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="4" fill="{fill}" '
            'stroke="#888888"/>'
            f'<text x="{x + 6:.1f}" y="{y + 14:.1f}" font-weight="bold">{html.escape(box.title)}</text>'
            f'<text x="{x + 6:.1f}" y="{y + 27:.1f}">{html.escape(box.detail[:36])}</text>'
        )
    legend = "query side orange, key side blue; width: share of the side; dashed: negative"
    parts.append(f'<text x="{_MARGIN}" y="{height - 8}" fill="#555555">{legend}</text></svg>')
    return "\n".join(parts)


def trace_html(trace: Trace) -> str:
    """Return one page, in which the JSON stands as `<script type="application/json" id="trace">`."""
    rows = []
    for node in trace.nodes:
        query, key = node.cancellation
        rows.append(
            f"<tr><th colspan='4'>{html.escape(trace.name(node))}: {node.summary}; Σ|term| ÷ |Σ term|: query "
            f"{query:.2f}, key {key:.2f}</th></tr>"
        )
        for edge in node.edges:
            several = f" ({edge.n_terms:,} terms)" if edge.n_terms > 1 else ""
            rows.append(
                f"<tr><td>{edge.side}</td><td>{html.escape(trace.name(edge))}{several}</td><td>{edge.nats:+.4f}</td>"
                f"<td>{edge.share:.1%}</td></tr>"
            )
    record = trace_json(trace).replace("<", "\\u003c")
    return (
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\"><title>"
        f"{html.escape(trace.headline)}</title><style>body{{font-family:sans-serif;margin:1.5em}}table{{border-collapse:"
        "collapse}td,th{padding:2px 10px;text-align:left;font-weight:normal}th{padding-top:10px;font-weight:bold}"
        f"</style></head><body><h1>{html.escape(trace.headline)}</h1>{trace_svg(trace)}"
        "<p>The query side and the key side of a cell are two separate sums, each of the cell's contrast. Terms of "
        "different cells are not to be added or multiplied: behind the first cell they are of first order.</p>"
        f"<table>{''.join(rows)}</table><script type='application/json' id='trace'>{record}</script></body></html>\n"
    )
