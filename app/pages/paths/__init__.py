"""Paths: which ways a logit came through the heads, and the model without one of them."""

from __future__ import annotations

from app.pages.paths.address import ADDRESS
from app.pages.paths.callbacks import SHOWN, python, register
from app.pages.paths.ids import ids
from app.pages.paths.layout import layout
from app.pages.paths.service import CELL, Paths
from app.shell import ids as shell
from app.shell.browser import Browser
from app.shell.page import Page
from app.shell.props import inside, props, stores, values

PAGE = Page(
    title="Paths",
    address=ADDRESS,
    service=Paths,
    layout=layout,
    register=register,
    python=python,
    writes={
        "without": (ids.TAKEN, "data"),
        **values(view=ids.VIEWS, beside=ids.BESIDES, of=ids.OF, part=ids.SCORE_VIEWS, sums=ids.SCORE_SUMS),
        **inside(ids.CELL, *CELL),
        **inside(ids.SHOWN, *SHOWN),
    },
    browser=(
        Browser("useCell", inputs=props("cellClicked", click=shell.table(ids.HEADS)), at_first=False),
        Browser(
            "show",
            inputs=stores(without=ids.TAKEN, strip=shell.drawn(ids.STRIP), paths=shell.drawn(ids.PATHS)),
        ),
        Browser(
            "openScore", inputs=stores(prompt=ids.PROMPT) | values(of=ids.OF), outputs=stores(prompt=ids.SCORE_PROMPT)
        ),
        Browser(
            "showScore",
            inputs=stores(
                cell=ids.CELL,
                top=shell.drawn(ids.SCORE_TOP),
                pairs=shell.drawn(ids.PAIR_LINES),
                trace=shell.drawn(ids.TRACE_LINES),
            ),
        ),
        Browser("followTrace", inputs=props("clickData", click=shell.graph(ids.TRACE)), at_first=False),
    ),
    sends={
        ids.SCORE_PROMPT: {"checkpoint": "", "text": ""},
        ids.POSITION: 0,
        ids.TAKEN: "0.1",
        ids.CELL: {"head": (0, 1), "query": 0, "key": 0, "against": None},
    },
    file=__file__,
)
