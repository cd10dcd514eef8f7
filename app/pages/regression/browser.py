"""What the In-context regression page does in the browser (regression.js): lock a row of the map; links."""

from __future__ import annotations

from app.pages.regression.address import PARAMETERS
from app.pages.regression.ids import ids
from app.shell import ids as shell
from app.shell.browser import Browser, Link, Source
from app.shell.props import inside, props, stores, values

WRITES: dict[str, Source] = {
    "models": (ids.SHOWN, "data.named"),
    **inside(ids.SHOWN, "checkpoint", "dims", "nonzero", *PARAMETERS),
    **values(axis=ids.AXIS, tab=ids.TABS, query=ids.QUERY, view=ids.VIEW, how=ids.HOW, prompt=ids.PROMPT),
    **stores(head=ids.HEAD),
}

BROWSER = (
    Browser("show", inputs=stores(shown=ids.SHOWN) | values(query=ids.QUERY)),
    Browser(
        "lock",
        inputs=props("clickData", click=shell.graph(ids.MAP)),
        state=values(query=ids.QUERY),
        outputs=values(query=ids.QUERY),
        at_first=False,
    ),
    Link("checkpoints", to=ids.OPEN_CARD, checkpoint=(ids.SHOWN, "data.checkpoint")),
)
