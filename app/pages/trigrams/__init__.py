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

from app.pages.trigrams import callbacks, file_callbacks, path_callbacks, view_callbacks
from app.pages.trigrams.address import ADDRESS
from app.pages.trigrams.browser import BROWSER
from app.pages.trigrams.ids import ids
from app.pages.trigrams.layout import layout
from app.pages.trigrams.python import python
from app.pages.trigrams.service import Trigrams
from app.shell.page import Page, register_all
from app.shell.props import inside, props, values

PAGE = Page(
    title="Skip-trigrams",
    address=ADDRESS,
    service=Trigrams,
    layout=layout,
    register=register_all(callbacks, view_callbacks, path_callbacks, file_callbacks),
    python=python,
    writes={
        **inside(ids.ASKED, "checkpoint", "score", "end", "distance", "k"),
        "head": (ids.ASKED, "data.layer", "data.head"),
        **values(**ids.named("source destination out within after fold verdict kind tokens least")),
        **values(tab=ids.TABS, beside=ids.BESIDES),
        **props("checked", own=ids.OWN),
        **inside(ids.READING, "corpus"),
        "row": (ids.ROW, "data"),
    },
    browser=BROWSER,
    sends={ids.HEAD: (0, 1)},
    file=__file__,
)
