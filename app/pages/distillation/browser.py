"""What the Distillation page does in the browser (assets/distillation.js): pick, run, write the address."""

from __future__ import annotations

from dash import ClientsideFunction, Dash, Input, Output, State

from app import ids
from app.pages.shared import mark_head


def register(app: Dash) -> None:
    """Names the functions and what each listens to."""
    mark_head(app, ids.DISTILLATION_HEADS, ids.DISTILLATION)
    app.clientside_callback(
        ClientsideFunction("distillation", "pick"),
        Output(ids.DISTILLATION_ASKED, "data"),
        Input(ids.DISTILLED_GRID_GRAPH, "clickData"),
        Input(ids.DISTILLED_CLOUD_GRAPH, "clickData"),
        Input(ids.DISTILLED_TABLE_GRID, "cellClicked"),
        Input(ids.DISTILLATION_PICKED, "data"),
        State(ids.DISTILLATION, "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("distillation", "submit"),
        Output(ids.DISTILLATION_PROMPT, "data"),
        Input(ids.DISTILLATION_RUN, "n_clicks"),
        State(ids.DISTILLATION_TEXT, "value"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("distillation", "show"),
        Input(ids.DISTILLATION, "data"),
        Input(ids.DISTILLED_SAID, "children"),
    )
    app.clientside_callback(
        ClientsideFunction("distillation", "writeAddress"),
        Input(ids.DISTILLATION, "data"),
        Input(ids.DISTILLATION_PROMPT, "data"),
    )
