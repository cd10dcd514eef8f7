"""What the Skip-trigrams page does in the browser (trigrams.js): pick rows, hand the filters to the grid."""

from __future__ import annotations

from dash import Output

from app.pages.trigrams.ids import ids
from app.shell import ids as shell
from app.shell.browser import Browser
from app.shell.props import props, stores, values

BROWSER = (
    Browser(
        "list",
        inputs=stores(shown=ids.SHOWN, opened=ids.OPEN)
        | values(**ids.named("source destination out within verdict kind")),
    ),
    Browser(
        "pick",
        inputs=props("selectedRows", selected=shell.table(ids.ROWS)),
        outputs={"row": Output(ids.ROW, "data", allow_duplicate=True)},
        at_first=False,
    ),
    Browser(
        "askPath",
        inputs=stores(asked=ids.ASKED, reading=ids.READING) | values(after=ids.AFTER) | props("checked", own=ids.OWN),
        state=stores(before=ids.ASKED_PATH),
        outputs=stores(path=ids.ASKED_PATH),
    ),
    Browser(
        "unfold",
        inputs=props("cellClicked", click=shell.table(ids.ROWS)),
        state=stores(opened=ids.OPEN),
        outputs=stores(opened=ids.OPEN),
        at_first=False,
    ),
    Browser(
        "walk",
        inputs=props("cellClicked", click=shell.table(ids.ALL_HEADS)),
        state=props("rowData", rows=shell.table(ids.ALL_HEADS)),
        at_first=False,
    ),
)
