"""What the Paths page does in the browser (assets/paths.js): pick a token, take away, write the address."""

from __future__ import annotations

from dash import ClientsideFunction, Dash, Input

from app import ids
from app.pages.shared import submit_text


def register(app: Dash) -> None:
    """Names the functions and what each listens to."""
    submit_text(
        app,
        prompt=ids.PATHS_PROMPT,
        text=ids.PATHS_TEXT,
        example=ids.PATHS_EXAMPLE,
        checkpoint=ids.PATHS_CHECKPOINT,
        run=ids.PATHS_RUN,
    )
    app.clientside_callback(
        ClientsideFunction("paths", "useCell"),
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
