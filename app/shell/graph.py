"""dcc.Graph with the one configuration that every figure uses; and blocks of a matrix, drawn by the widget."""

from __future__ import annotations

import base64
import re
from html import unescape
from typing import TYPE_CHECKING, Any

import numpy as np
from dash import dcc, html

from aotlens.plots.results import DISPLAY
from app.shell import ids
from app.shell.panel import QUIET

if TYPE_CHECKING:
    import plotly.graph_objects as go

#: The address that dcc.Graph loads plotly from; no page names it.
PLOTLY = "/_dash-component-suites/plotly/package_data/plotly.min.js"
CONFIG: dict[str, Any] = {**DISPLAY, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[^a-z\s])")

EMPTY: dict[str, Any] = {
    "data": [],
    "layout": {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": {"visible": False},
        "yaxis": {"visible": False},
        "modebar": {"remove": ["toimage", "zoom", "pan", "zoomin", "zoomout", "resetscale"]},
    },
}


def figure(panel: str, class_name: str) -> html.Div:
    """Return the one figure of a panel; `class_name` sets its size."""
    return graph(ids.graph(panel), class_name)


def matrix(panel: str, class_name: str) -> html.Div:
    """Return the one block of a matrix of a panel (static/matrix.js), whose entries come through a store."""
    box = html.Div(id=ids.matrix(panel), className=f"large {class_name}", **QUIET)
    return html.Div([box, dcc.Store(id=ids.drawn(ids.matrix(panel)))])


def entries_of(figure: go.Figure) -> dict[str, Any]:
    """Return what static/matrix.js draws of a figure of one heat map: entries as float32, row by row, and labels."""
    (heat,), layout = figure.data, figure.layout
    meta = layout.meta or {}
    rows, columns = ([unescape(label) for label in labels] for labels in (heat.y, heat.x))
    return {
        "values": base64.b64encode(np.ascontiguousarray(heat.z, dtype="<f4").tobytes()).decode("ascii"),
        "rows": rows, "columns": columns,
        "names": [meta.get("row_names", rows), meta.get("column_names", columns)],
        "titles": [layout.yaxis.title.text, layout.xaxis.title.text], "quantity": heat.colorbar.title.text,
        "least": heat.zmin, "most": heat.zmax, "stops": [colour for _, colour in heat.colorscale],
        "name": meta.get("name", ""), "meta": {name: meta[name] for name in meta if name not in ("name", "picks")},
    }  # fmt: skip


def caption(panel: str) -> html.P:
    """Return a sentence about what a panel shows, filled by a callback."""
    return html.P(id=ids.caption(panel), className="caption", role="status")


def finding_first(caption: str) -> list[Any]:
    """Return a caption with its first sentence, the finding, in bold."""
    finding, *rest = _SENTENCE_END.split(caption, maxsplit=1)
    return [html.Strong(finding), *(f" {sentences}" for sentences in rest)]


def graph(id: str, class_name: str) -> html.Div:
    """Return an empty graph in a box that sets its size: a responsive dcc.Graph has `height: 100%` of its own."""
    return html.Div(
        dcc.Graph(id=id, figure=EMPTY, config=CONFIG, className="graph", responsive=True),
        id=ids.box(id),
        className=class_name,
    )
