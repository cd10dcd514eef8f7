"""Atlas: what every head of a checkpoint does, a row and a summary each, and a guided path to an induction circuit."""

from __future__ import annotations

from dash import Input, State

from app.pages.atlas import callbacks, path_callbacks
from app.pages.atlas.address import ADDRESS
from app.pages.atlas.callbacks import python
from app.pages.atlas.ids import ids
from app.pages.atlas.layout import layout
from app.pages.atlas.service import Atlases
from app.shell import ids as shell
from app.shell.browser import Browser, Link
from app.shell.page import Page, register_all
from app.shell.props import inside, props, stores, values

_HEAD = (ids.CHOSEN, "data.layer", "data.head")
_CHECKPOINT = (ids.CHOSEN, "data.name")

PAGE = Page(
    title="Atlas",
    address=ADDRESS,
    service=Atlases,
    layout=layout,
    register=register_all(callbacks, path_callbacks),
    python=python,
    writes={
        **inside(ids.SHOWN, "checkpoint", "corpus"),
        **values(x=ids.X, y=ids.Y, where=ids.SEARCH, bin=ids.BIN, tab=ids.TABS),
        "head": _HEAD,
    },
    browser=(
        Browser("choose", inputs=stores(shown=ids.SHOWN, head=ids.HEAD), outputs=stores(chosen=ids.CHOSEN)),
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
    ),
    sends={
        ids.HEAD: (0, 1),
        ids.CHOSEN: {
            "checkpoint": "", "corpus": "", "key": "", "name": "", "layers": 1, "heads": 1, "layer": 0, "head": 0,
            "picked": True,
        },
    },
    file=__file__,
)  # fmt: skip
