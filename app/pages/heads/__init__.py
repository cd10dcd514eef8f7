"""Heads: type text, and see what every head of a model does with it.

layout.py      what is there
callbacks.py   a text, a head, a view, a token
browser.py     shade, mark, lock, write the address
export.py      files
"""

from __future__ import annotations

from dash import Dash

from app.pages.heads import browser, callbacks, export
from app.pages.heads.layout import layout
from app.pages.page import Page
from app.services import Services
from app.urlstate import HEADS_PATH


def register(app: Dash, services: Services) -> None:
    """The page's callbacks."""
    browser.register(app)
    callbacks.register(app, services)
    export.register(app, services)


PAGE = Page(name="Heads", path=HEADS_PATH, layout=layout, register=register)
