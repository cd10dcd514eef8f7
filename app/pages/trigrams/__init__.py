"""Skip-trigrams: the best `[source] … [destination] → [predicted token]` of a head, and whether text bears them out.

service.py      what the page says that it shows; searches, checks and tables, once each
callbacks.py    what it asks of the server
rows.py         the table's rows: searched, sorted, a page at a time
occurrences.py  places in text where a row happens
tables.py       the tables' columns
"""

from __future__ import annotations

from dash import Output

from app.pages.trigrams.address import ADDRESS
from app.pages.trigrams.callbacks import python, register
from app.pages.trigrams.ids import ids
from app.pages.trigrams.layout import layout
from app.pages.trigrams.service import CONTROLS, Trigrams
from app.shell import ids as shell
from app.shell.browser import Browser
from app.shell.page import Page
from app.shell.props import children, inside, props, stores, values

_FILTERS = ids.named("source destination out within after fold verdict kind tokens least")

PAGE = Page(
    title="Skip-trigrams",
    address=ADDRESS,
    service=Trigrams,
    layout=layout,
    register=register,
    python=python,
    writes={
        **inside(ids.ASKED, "checkpoint", "score", "end", "distance", "k"),
        "head": (ids.SHOWN, "data.layer", "data.head"),
        **values(**_FILTERS, tab=ids.TABS, beside=ids.BESIDES),
        **props("checked", own=ids.OWN),
        **inside(ids.SHOWN, "corpus"),
        "row": (ids.ROW, "data"),
    },
    browser=(
        Browser(
            "collect",
            inputs=values(**ids.named(" ".join(name for name in CONTROLS if name != "own")))
            | stores(head=ids.HEAD)
            | props("checked", own=ids.OWN),
            state=stores(before=ids.ASKED),
            outputs=stores(asked=ids.ASKED, row=ids.ROW, opened=ids.OPEN),
        ),
        # Dash waits with it until the grid, which comes late, is there.
        Browser(
            "list", inputs=stores(first=ids.FIRST, opened=ids.OPEN), state=stores(asked=ids.ASKED), listens=False
        ),
        Browser(
            "pick",
            inputs=props("selectedRows", selected=shell.table(ids.ROWS)),
            outputs={"row": Output(ids.ROW, "data", allow_duplicate=True)},
            at_first=False,
        ),
        Browser("mark", inputs=children(title=shell.title(ids.ONE))),
        Browser(
            "unfold",
            inputs=props("cellClicked", click=shell.table(ids.ROWS)),
            state=stores(opened=ids.OPEN),
            outputs={"opened": Output(ids.OPEN, "data", allow_duplicate=True)},
            at_first=False,
        ),
        Browser("walk", inputs=props("cellClicked", click=shell.table(ids.ALL_HEADS)), at_first=False),
    ),
    sends={
        ids.HEAD: (0, 1),
        ids.ASKED: {
            "checkpoint": "", "head": (0, 1), "score": "effect", "end": "top", "distance": None, "k": 1, "fold": "none",
            "least": 0, "within": "table", "source": "", "destination": "", "out": "", "verdict": None, "kind": None,
            "corpus": None, "tokens": 1, "own": False, "after": "", "pasted": "",
        },
        ids.ROW: 1,
        ids.OPEN: (1,),
    },
    file=__file__,
)  # fmt: skip
