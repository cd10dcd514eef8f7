"""What the Heads page does in the browser (assets/heads.js): shade, mark, lock, and write the address."""

from __future__ import annotations

from dash import ClientsideFunction, Dash, Input, Output, State

from app import ids
from app.pages.shared import submit_text


def register(app: Dash) -> None:
    """Names the functions and what each listens to."""
    submit_text(app, prompt=ids.PROMPT, text=ids.TEXT, example=ids.EXAMPLE, checkpoint=ids.CHECKPOINT, run=ids.RUN)
    app.clientside_callback(
        ClientsideFunction("heads", "show"),
        Input(ids.ANALYSIS, "data"),
        Input(ids.HEAD, "data"),
        Input(ids.POSITION, "data"),
        Input(ids.DIRECTION, "value"),
    )
    app.clientside_callback(ClientsideFunction("heads", "showMotifs"), Input(ids.MOTIFS, "data"))
    app.clientside_callback(ClientsideFunction("heads", "showMap"), Input(ids.MAP_GRAPH, "figure"))
    app.clientside_callback(
        ClientsideFunction("heads", "lockFromMap"),
        Input(ids.MAP_GRAPH, "clickData"),
        State(ids.DIRECTION, "value"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("circuits", "link"),
        Output(ids.OPEN_CIRCUITS, "href"),
        Input(ids.PROMPT, "data"),
        Input(ids.HEAD, "data"),
    )
    app.clientside_callback(
        ClientsideFunction("paths", "link"),
        Output(ids.OPEN_PATHS, "href"),
        Input(ids.PROMPT, "data"),
        Input(ids.HEAD, "data"),
        Input(ids.POSITION, "data"),
    )
    app.clientside_callback(
        ClientsideFunction("heads", "writeAddress"),
        Input(ids.PROMPT, "data"),
        Input(ids.HEAD, "data"),
        Input(ids.POSITION, "data"),
        Input(ids.VIEW, "value"),
        Input(ids.DIRECTION, "value"),
        Input(ids.HIDE_FIRST, "checked"),
    )
