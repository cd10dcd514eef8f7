"""Checkpoints: what there is, how well it does, its card, training curve and parameters."""

from __future__ import annotations

import re
from typing import Any

import dash_ag_grid as dag
import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html

from aotlens.checkpoints import CheckpointInfo
from aotlens.plots import Theme
from app import ids
from app.components import tables
from app.components.graph import EMPTY, graph
from app.components.notices import empty, problem
from app.components.panel import panel
from app.pages.guard import guarded
from app.pages.shared import save_pictures
from app.services import Services
from app.urlstate import HeadsState, format_heads, parse_checkpoints

_EXPLAIN_CATALOG = (
    "Every model at hand: those given with --checkpoints, your own, and the bundled ones. Losses are nats per token on "
    "held-out text; the bigram loss is that of a smoothed bigram model on the same text, so the difference is what the "
    "model gets from more than the token before. Choose a row."
)
_EXPLAIN_CARD = "What the model was trained on, how, and what it is for."
_EXPLAIN_CURVE = (
    "Losses over training in nats per token, and, where they were logged, the best score of any head for a motif."
)
_EXPLAIN_PARAMETERS = "Every tensor of the checkpoint's file, with its shape and how its numbers are stored."


def layout(services: Services, search: str | None) -> html.Div:
    """The page for an address; with nothing in it, the first checkpoint is chosen."""
    found = services.catalog.list()
    chosen = parse_checkpoints(search) or (found[0].name if found else None)
    rows = [tables.checkpoint_row(info) for info in found]
    table = dag.AgGrid(
        id=ids.CHECKPOINTS_TABLE,
        columnDefs=tables.CHECKPOINT_COLUMNS,
        rowData=rows,
        selectedRows={"ids": [chosen]} if any(row["name"] == chosen for row in rows) else [],
        getRowId="params.data.name",
        defaultColDef=tables.COLUMN,
        dashGridOptions=tables.options(selectable=True),
        style={"height": None},
        className="table",
    )
    curve = [
        graph(ids.CURVE_GRAPH, "graph-curve"),
        html.Div("No training curve was kept with this checkpoint.", id=ids.CURVE_EMPTY, className="hidden"),
    ]
    details = [
        panel(ids.CARD, "Card", _EXPLAIN_CARD, html.Div(id=ids.CARD_BODY), controls=_open_button()),
        html.Div(
            [
                panel(ids.CURVE, "Training", _EXPLAIN_CURVE, curve, exports=("png", "svg")),
                panel(ids.PARAMETERS, "Parameters", _EXPLAIN_PARAMETERS, html.Div(id=ids.PARAMETERS_TABLE)),
            ],
            className="stack",
        ),
    ]
    return html.Div(
        [
            html.H1("Checkpoints", className="sr-only"),
            dcc.Store(id=ids.CHECKPOINTS_CHOSEN, data=chosen),
            panel(ids.CATALOG, "Checkpoints", _EXPLAIN_CATALOG, table if rows else empty("There are no checkpoints.")),
            html.Div(details, className="columns columns-card"),
        ],
        className="checkpoints",
    )


def _open_button() -> dcc.Link:
    return dcc.Link("Open in Heads", id=ids.CHECKPOINTS_OPEN, href=format_heads(HeadsState()), className="button-link")


def register(app: Dash, services: Services) -> None:
    """The page's callbacks."""
    app.clientside_callback(
        ClientsideFunction("checkpoints", "choose"),
        Output(ids.CHECKPOINTS_CHOSEN, "data"),
        Input(ids.CHECKPOINTS_TABLE, "selectedRows"),
        State(ids.CHECKPOINTS_CHOSEN, "data"),
        prevent_initial_call=True,
    )
    save_pictures(app, ids.CURVE, ids.CURVE_GRAPH, title=State(ids.CHECKPOINTS_CHOSEN, "data"))

    @app.callback(
        Output(ids.CARD_BODY, "children"),
        Output(ids.title(ids.CARD), "children"),
        Output(ids.CHECKPOINTS_OPEN, "href"),
        Output(ids.CHECKPOINTS_OPEN, "className"),
        Output(ids.PARAMETERS_TABLE, "children"),
        Output(ids.notice(ids.CARD), "children"),
        Input(ids.CHECKPOINTS_CHOSEN, "data"),
    )
    @guarded(None, "Card", "/heads", "button-link hidden", None)
    def show_card(chosen: str | None) -> tuple[Any, ...]:
        if chosen is None:
            return empty("Choose a checkpoint above."), "Card", "/heads", "button-link hidden", None
        info = services.catalog.info(chosen)
        href = format_heads(HeadsState(checkpoint=info.name))
        shown = "button-link" if services.catalog.reads_text(info) else "button-link hidden"
        return _card(info), info.name, href, shown, tables.parameters(services.catalog.tensors(info))

    @app.callback(
        Output(ids.CURVE_GRAPH, "figure"),
        Output(ids.box(ids.CURVE_GRAPH), "className"),
        Output(ids.CURVE_EMPTY, "className"),
        Output(ids.notice(ids.CURVE), "children"),
        Input(ids.CHECKPOINTS_CHOSEN, "data"),
        Input(ids.THEME, "data"),
    )
    @guarded(EMPTY, "hidden", "hidden")
    def show_curve(chosen: str | None, theme: Theme | None) -> tuple[Any, ...]:
        figure = services.catalog.curve(chosen, theme or "light") if chosen else None
        shown = figure is not None
        return figure or EMPTY, "graph-curve" if shown else "hidden", "hidden" if shown else "empty"


def _card(info: CheckpointInfo) -> Any:
    if info.problem is not None:
        return problem(info.problem, "This checkpoint can't be opened")
    note = [dmc.Alert(info.note, color="blue", variant="light")] if info.note else []
    # The panel's title is the name already.
    text = re.sub(r"\A# .*\n", "", info.card or info.description or "It has no card.")
    return html.Div([*note, dcc.Markdown(text, className="markdown")])
