"""Circuits: what a head attends to and what it writes, read from the weights."""

from __future__ import annotations

from app.pages.circuits.address import ADDRESS
from app.pages.circuits.callbacks import python, register
from app.pages.circuits.ids import ids
from app.pages.circuits.layout import layout
from app.pages.circuits.service import Circuits
from app.shell import ids as shell
from app.shell.browser import Browser, Link
from app.shell.page import Page
from app.shell.props import inside, props, stores, values

_CHECKPOINT = (ids.SHOWN, "data.checkpoint")
_HEAD = (ids.SHOWN, "data.layer", "data.head")

PAGE = Page(
    title="Circuits",
    address=ADDRESS,
    service=Circuits,
    layout=layout,
    register=register,
    python=python,
    writes={
        **inside(ids.SHOWN, "checkpoint", "kind", "biases", "distance"),
        "head": _HEAD,
        "left": (ids.SHOWN, "data.named.left"),
        "right": (ids.SHOWN, "data.named.right"),
        **values(rows=ids.MAP_ROWS, columns=ids.MAP_COLUMNS, row=ids.ROW_CHOICE, column=ids.COLUMN_CHOICE),
        **values(statistic=ids.OVERVIEW_STATISTIC, z=ids.COMPOSITION_Z, view=ids.VIEWS, beside=ids.BESIDES),
        "block": (ids.BLOCK_AT, "data"),
        **inside(ids.ASKED, "text"),
    },
    browser=(
        Browser(
            "choose",
            inputs=values(
                checkpoint=ids.CHECKPOINT, kind=ids.KIND, left=ids.LEFT, right=ids.RIGHT, distance=ids.DISTANCE
            )
            | stores(head=ids.HEAD)
            | props("checked", biases=ids.BIASES),
            state=stores(shown=ids.SHOWN, chosen=ids.CHOSEN),
        ),
        Browser(
            "show",
            inputs=stores(shown=ids.SHOWN),
            outputs=props("className", link=ids.OPEN_HEADS, atlas=ids.OPEN_ATLAS),
            listens=True,
        ),
        Browser(
            "list",
            inputs=stores(
                top=shell.drawn(ids.TOP_ENTRIES),
                row=shell.drawn(ids.ROW_ENTRIES),
                column=shell.drawn(ids.COLUMN_ENTRIES),
                block=shell.drawn(ids.BLOCK_ENTRIES),
                composition=shell.drawn(ids.COMPOSITION_PAIRS),
                copying=shell.drawn(ids.COPYING_HEADS),
                singular=shell.drawn(ids.SINGULAR_PAIRS),
            ),
        ),
        Browser("pickHead", inputs=props("clickData", click=shell.graph(ids.COMPOSITION)), at_first=False),
        Browser(
            "drawMatrices",
            inputs=stores(
                map=shell.drawn(shell.matrix(ids.MAP)),
                overview=shell.drawn(shell.matrix(ids.OVERVIEW)),
                block=shell.drawn(shell.matrix(ids.BLOCK)),
            ),
        ),
        Link("heads", to=ids.OPEN_HEADS, checkpoint=_CHECKPOINT, head=_HEAD, text=(ids.ASKED, "data.text")),
        Link("atlas", to=ids.OPEN_ATLAS, always={"tab": "head"}, checkpoint=_CHECKPOINT, head=_HEAD),
    ),
    sends={
        ids.HEAD: (0, 1),
        ids.BLOCK_AT: (0, 0),
        ids.CHOSEN: {
            "checkpoint": "",
            "head": (0, 1),
            "kind": "qk",
            "left": "",
            "right": "",
            "biases": True,
            "distance": 0,
        },
    },
    file=__file__,
)
