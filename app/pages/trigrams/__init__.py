"""Skip-trigrams: the best `[source] … [destination] → [out]` of a head, and whether text bears them out.

callbacks.py            which table, which text, how far
view_callbacks.py       one row, kinds, what rows force
path_callbacks.py       the direct path
file_callbacks.py       files
service.py              tables and evidence, found and checked in the background
service_occurrences.py  places in text where a row happens
service_direct.py       the direct path, beside the bigrams of a text
rows.py                 rows of a table as they are listed
occurrence_list.py      these places, tokens marked
"""

from __future__ import annotations

from pathlib import Path

from app.core import Core
from app.pages.trigrams import callbacks, file_callbacks, path_callbacks, view_callbacks
from app.pages.trigrams.address import ADDRESS
from app.pages.trigrams.browser import BROWSER
from app.pages.trigrams.ids import ids
from app.pages.trigrams.layout import layout
from app.pages.trigrams.service import Trigrams
from app.shell.app import App
from app.shell.page import Page
from app.shell.props import inside, props, values
from app.shell.sharing import mark_head


def register(app: App, core: Core, service: Trigrams) -> None:
    """The page's callbacks."""
    mark_head(app, ids.HEADS, ids.ASKED)
    callbacks.register(app, service)
    view_callbacks.register(app, service)
    path_callbacks.register(app, service)
    file_callbacks.register(app, service)


PAGE = Page(
    title="Skip-trigrams",
    address=ADDRESS,
    service=Trigrams,
    layout=layout,
    register=register,
    writes={
        **inside(ids.ASKED, "checkpoint", "score", "end", "distance", "k"),
        "head": (ids.ASKED, "data.layer", "data.head"),
        **values(source=ids.SOURCE, destination=ids.DESTINATION, out=ids.OUT, within=ids.WITHIN),
        **values(tab=ids.TABS, after=ids.AFTER, fold=ids.FOLD),
        **props("checked", own=ids.OWN),
        **values(verdict=ids.VERDICT, kind=ids.KIND, tokens=ids.TOKENS, least=ids.LEAST),
        **inside(ids.READING, "corpus"),
        "row": (ids.ROW, "data"),
    },
    browser=BROWSER,
    script=Path(__file__).with_name("trigrams.js"),
    style=Path(__file__).with_name("trigrams.css"),
)
