"""Skip-trigrams: the best `[source] … [destination] → [out]` of a head, and whether text bears them out.

layout.py      what is there
callbacks.py   which table, which text, how far
views.py       one row, kinds, what rows force
browser.py     pick, filter, write the address
export.py      files
"""

from __future__ import annotations

from dash import Dash

from app.pages.page import Page
from app.pages.trigrams import browser, callbacks, export, views
from app.pages.trigrams.layout import layout
from app.services import Services
from app.urlstate import TRIGRAMS_PATH


def register(app: Dash, services: Services) -> None:
    """The page's callbacks."""
    browser.register(app)
    callbacks.register(app, services)
    views.register(app, services)
    export.register(app, services)


PAGE = Page(name="Skip-trigrams", path=TRIGRAMS_PATH, layout=layout, register=register)
