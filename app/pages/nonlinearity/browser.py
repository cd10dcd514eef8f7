"""What the Non-linearity page does in the browser (assets/nonlinearity.js): draw, slide η, write the address."""

from __future__ import annotations

from dash import ClientsideFunction, Dash, Input, State

from app import ids
from app.pages.shared import mark_head


def register(app: Dash) -> None:
    """Names the functions and what each listens to."""
    mark_head(app, ids.ONE_HEAD_PICKER, ids.ONE_HEAD_SHOWN)

    def call(name: str, *listened: Input | State, first: bool = True) -> None:
        app.clientside_callback(
            ClientsideFunction("nonlinearity", name), *listened, prevent_initial_call=not first
        )  # fmt: skip

    call(
        "arrange",
        Input(ids.NONLINEARITY_PRESET, "value"),
        Input(ids.NONLINEARITY_INPUTS, "value"),
        Input(ids.NONLINEARITY_AUXILIARY, "value"),
        Input(ids.NONLINEARITY_ACTIVATION, "value"),
    )
    # A callback without outputs isn't called for a page that is new: the store's first answer makes it draw.
    call(
        "draw",
        Input(ids.NONLINEARITY_KNOTS, "value"),
        Input(ids.NONLINEARITY_BOUND, "value"),
        Input(ids.NONLINEARITY, "data"),
    )
    call("addPoint", Input(ids.NONLINEARITY_ADD, "n_clicks"), first=False)
    call("slide", Input(ids.ETA_SLIDER, "value"), State(ids.NONLINEARITY, "data"), first=False)
    call("proof", Input(ids.ETA_PROOF, "n_clicks"), first=False)
    call("takeHead", Input(ids.COMPILED_HEADS_TABLE, "cellClicked"), first=False)
    call("takeInput", Input(ids.COMPILED_ERROR_GRAPH, "clickData"), first=False)
    call("show", Input(ids.NONLINEARITY, "data"), Input(ids.ETA, "data"))
    call(
        "writeAddress",
        Input(ids.NONLINEARITY, "data"),
        Input(ids.ONE_HEAD_SHOWN, "data"),
        Input(ids.COMPILED_SCALE, "value"),
    )
