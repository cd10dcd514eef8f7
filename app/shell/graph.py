"""dcc.Graph with the one configuration that every figure uses."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

from dash import dcc, html

from aotlens.plots import Theme
from aotlens.plots.colours import base_layout
from aotlens.plots.display import DISPLAY
from app.shell import ids

#: The address that dcc.Graph loads plotly from; no page names it.
PLOTLY = "/_dash-component-suites/plotly/package_data/plotly.min.js"
CONFIG: dict[str, Any] = {**DISPLAY, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}

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


def blank(sentence: str, theme: Theme) -> dict[str, Any]:
    """An empty figure that says why it is empty."""
    text = {"text": "<br>".join(wrap(sentence, 56)), "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5,
            "showarrow": False, "font": {**base_layout(theme)["font"], "size": 13}}  # fmt: skip
    return {"data": [], "layout": {**EMPTY["layout"], "annotations": [text]}}


def figure(panel: str, class_name: str) -> html.Div:
    """The one figure of a panel; `class_name` sets its size."""
    return graph(ids.graph(panel), class_name)


def caption(panel: str) -> html.P:
    """A sentence about what a panel shows, filled by a callback."""
    return html.P(id=ids.caption(panel), className="caption", role="status")


def graph(id: str, class_name: str) -> html.Div:
    """An empty graph in a box that sets its size: a responsive dcc.Graph has `height: 100%` of its own."""
    return html.Div(
        dcc.Graph(id=id, figure=EMPTY, config=CONFIG, className="graph", responsive=True),
        id=ids.box(id),
        className=class_name,
    )
