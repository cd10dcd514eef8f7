"""What the Atlas page does in the browser (atlas.js): open a head's dossier, link to the head elsewhere."""

from __future__ import annotations

from dash import Input, State

from app.pages.atlas.ids import ids
from app.shell import ids as shell
from app.shell.browser import Browser, Link, Source
from app.shell.props import inside, props, values

_HEAD = (ids.CHOSEN, "data.layer", "data.head")
_CHECKPOINT = (ids.CHOSEN, "data.name")

WRITES: dict[str, Source] = {
    **inside(ids.SHOWN, "checkpoint", "corpus"),
    **values(x=ids.X, y=ids.Y, where=ids.SEARCH, bin=ids.BIN, tab=ids.TABS),
    "head": _HEAD,
}

BROWSER = (
    Browser(
        "openFromTable",
        inputs={"click": Input(shell.table(ids.TABLE), "cellClicked")},
        state={"rows": State(shell.table(ids.TABLE), "rowData")},
        at_first=False,
    ),
    Browser("openFromPoint", inputs=props("clickData", click=shell.graph(ids.SCATTER)), at_first=False),
    Link("heads", to=ids.OPEN_HEADS, checkpoint=_CHECKPOINT, head=_HEAD),
    Link("circuits", to=ids.OPEN_CIRCUITS, checkpoint=_CHECKPOINT, head=_HEAD),
    Link("paths", to=ids.OPEN_PATHS, checkpoint=_CHECKPOINT, through=_HEAD),
)
