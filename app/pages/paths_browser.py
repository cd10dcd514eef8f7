"""What the Paths page does in the browser (assets/paths.js): submit, pick a token, take away, write the address."""

from __future__ import annotations

from dash import ClientsideFunction, Dash, Input, Output, State

from app import ids


def register(app: Dash) -> None:
    """Names the functions and what each listens to."""
    app.clientside_callback(
        ClientsideFunction("paths", "submit"),
        Output(ids.PATHS_PROMPT, "data"),
        Output(ids.PATHS_TEXT, "value"),
        Output(ids.PATHS_EXAMPLE, "value"),
        Input(ids.PATHS_RUN, "n_clicks"),
        Input(ids.PATHS_CHECKPOINT, "value"),
        Input(ids.PATHS_EXAMPLE, "value"),
        State(ids.PATHS_TEXT, "value"),
        State(ids.PATHS_PROMPT, "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("paths", "takeHead"),
        Input(ids.PATH_HEADS_TABLE, "cellClicked"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("paths", "show"),
        Input(ids.PATHS, "data"),
        Input(ids.PATHS_WITHOUT, "data"),
        Input(ids.TOP_PATHS_TABLE, "children"),
    )
    app.clientside_callback(
        ClientsideFunction("paths", "writeAddress"), Input(ids.PATHS, "data"), Input(ids.PATHS_WITHOUT, "data")
    )
