"""What the Circuits page does in the browser (circuits.js): pick tokens and blocks, walk to other heads."""

from __future__ import annotations

from dash import Input, State

from app.pages.circuits.ids import ids
from app.shell import ids as shell
from app.shell.browser import Browser, Link
from app.shell.props import props, stores

#: Tables whose tokens can be clicked.
_PICKED_FROM = (
    ids.TOP_LARGEST,
    ids.TOP_SMALLEST,
    ids.ROW_LARGEST,
    ids.ROW_SMALLEST,
    ids.COLUMN_LARGEST,
    ids.COLUMN_SMALLEST,
    shell.table(ids.BLOCK),
)


def _on_click_in_table(function: str, table: str) -> Browser:
    click, rows = Input(table, "cellClicked"), State(table, "rowData")
    return Browser(function, inputs={"click": click}, state={"rows": rows}, at_first=False)


def _on_click_in_figure(function: str, graph: str) -> Browser:
    click, figure = Input(graph, "clickData"), State(graph, "figure")
    return Browser(function, inputs={"click": click}, state={"figure": figure}, at_first=False)


BROWSER = (
    Browser(
        "show",
        inputs=stores(shown=ids.SHOWN),
        outputs=props("className", link=ids.OPEN_HEADS, atlas=ids.OPEN_ATLAS),
    ),
    Link(
        "heads",
        to=ids.OPEN_HEADS,
        checkpoint=(ids.SHOWN, "data.checkpoint"),
        head=(ids.SHOWN, "data.layer", "data.head"),
        text=(ids.ASKED, "data.text"),
    ),
    Link(
        "atlas",
        to=ids.OPEN_ATLAS,
        always={"tab": "head"},
        checkpoint=(ids.SHOWN, "data.checkpoint"),
        head=(ids.SHOWN, "data.layer", "data.head"),
    ),
    *(_on_click_in_table("pickFromTable", table) for table in _PICKED_FROM),
    *(_on_click_in_figure("pickFromMap", graph) for graph in (shell.graph(ids.MAP), shell.graph(ids.BLOCK))),
    _on_click_in_figure("pickBlock", shell.graph(ids.OVERVIEW)),
    Browser(
        "frameBlock",
        inputs=props("figure", block=shell.graph(ids.BLOCK), overview=shell.graph(ids.OVERVIEW)),
    ),
    _on_click_in_figure("walk", shell.graph(ids.COMPOSITION)),
    *(_on_click_in_table("walkFromTable", table) for table in (shell.table(ids.COMPOSITION), shell.table(ids.COPYING))),
)
