"""Which checkpoint is chosen, its card, its training curve and its parameters."""

from __future__ import annotations

import re
from typing import Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html

from aotlens.checkpoints import CheckpointInfo
from aotlens.plots import Theme
from app import ids
from app.components import tables
from app.components.graph import EMPTY
from app.components.notices import empty, problem
from app.pages.guard import guarded
from app.pages.shared import save_pictures
from app.services import Services
from app.urlstate import HeadsState, format_heads


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
