"""A trace as files: JSON, an SVG drawing, and one HTML page with both and a table. Nothing is loaded from elsewhere."""

from __future__ import annotations

import html
import json
import math
from typing import TYPE_CHECKING, Any

from aotlens.paths.score.trace_layout import Box, layout_of

if TYPE_CHECKING:
    from aotlens.paths.score.traced import Traced, TraceEdge, TraceNode

SCHEMA = 1
_WIDTH, _HEIGHT, _BOX_WIDTH, _BOX_HEIGHT, _MARGIN = 280, 46, 210, 34, 16  # pixels; a column, a row, a box
#: The query side's edges, and the key side's.
COLOURS = {"query": "#b35c00", "key": "#2166ac"}


def trace_json(trace: Traced) -> str:
    """Return `{"schema", "tokens", "n_not_followed", "nodes": [{"cell", …, "edges": […]}]}`; infinite numbers are
    null."""
    record = {
        "schema": SCHEMA,
        "tokens": list(trace.str_tokens),
        "n_not_followed": trace.n_not_followed,
        "nodes": [_node(node) for node in trace.nodes],
    }
    return json.dumps(record, ensure_ascii=False, indent=1, allow_nan=False)


def _node(node: TraceNode) -> dict[str, Any]:
    query, key = (value if math.isfinite(value) else None for value in node.cancellation)
    return {
        **_cell(node),
        "against": node.against,
        "score": node.score,
        "contrast": node.contrast,
        "attention": node.attention,
        "before_threshold": node.before_threshold,
        "cancellation": {"query": query, "key": key},
        "edges": [_edge(edge) for edge in node.edges],
    }


def _edge(edge: TraceEdge) -> dict[str, Any]:
    return {
        "side": edge.side,
        "kind": edge.kind,
        **_cell(edge),
        "source": edge.source,
        "source_layer": edge.source_layer,
        "position": edge.position,
        "n_terms": edge.n_terms,
        "nats": edge.nats,
        "share": edge.share,
        "relative": edge.relative,
    }


def _cell(each: TraceNode | TraceEdge) -> dict[str, Any]:
    if each.cell is None:
        return {}
    head, query, key = each.cell
    return {"head": list(head), "query": query, "key": key}


def trace_svg(trace: Traced) -> str:
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


def trace_html(trace: Traced) -> str:
    """Return one page, in which the JSON stands as `<script type="application/json" id="trace">`."""
    rows = []
    for node in trace.nodes:
        softmax = ", of the softmax before the threshold" if node.before_threshold else ""
        rows.append(
            f"<tr><th colspan='4'>{html.escape(trace.name(node))}: score {node.score:+.3f}, contrast "
            f"{node.contrast:+.3f} nats{softmax}; Σ|term| ÷ |Σ term|: query {node.cancellation[0]:.2f}, key "
            f"{node.cancellation[1]:.2f}</th></tr>"
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
