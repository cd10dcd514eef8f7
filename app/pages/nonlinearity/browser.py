"""What the Non-linearity page does in the browser (nonlinearity.js): draw, slide η, pick an input."""

from __future__ import annotations

from dash import Input

from app.pages.nonlinearity.address import ADDRESS
from app.pages.nonlinearity.ids import ids
from app.shell import ids as shell
from app.shell.browser import Browser, Source
from app.shell.props import inside, props, stores, values

WRITES: dict[str, Source] = {
    **inside(ids.SHOWN, *ADDRESS.names()),
    "head": (ids.LOOK, "data.layer", "data.head"),
    "x": (ids.LOOK, "data.x"),
    **values(scale=ids.SCALE, view=ids.VIEWS, beside=ids.BESIDES),
}

_SHOWN = Input(ids.SHOWN, "data")

BROWSER = (
    Browser(
        "arrange",
        inputs=values(preset=ids.PRESET, inputs=ids.INPUTS, auxiliary=ids.AUXILIARY, activation=ids.ACTIVATION),
    ),
    # A callback without outputs isn't called for a page that is new: the store's first answer makes it draw.
    Browser(
        "draw",
        inputs={"text": Input(ids.KNOTS, "value"), "bound": Input(ids.BOUND, "value"), "shown": _SHOWN},
    ),
    Browser("addPoint", inputs=props("n_clicks", clicks=ids.ADD), at_first=False),
    Browser(
        "slide",
        inputs=values(value=ids.ETA_SLIDER),
        state=stores(shown=ids.SHOWN),
        at_first=False,
    ),
    Browser("proof", inputs=props("n_clicks", clicks=ids.ETA_PROOF), at_first=False),
    Browser("takeHead", inputs=props("cellClicked", click=shell.table(ids.HEADS)), at_first=False),
    Browser("takeInput", inputs=props("clickData", click=shell.graph(ids.ERROR)), at_first=False),
    Browser("show", inputs={"shown": _SHOWN, "eta": Input(ids.ETA, "data")}),
)
