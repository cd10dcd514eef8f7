"""Paths: which ways a logit came, from the text's tokens through heads.

layout.py      what is there
callbacks.py   a text, a target, what is taken away
browser.py     pick a token, take away, write the address
export.py      files
"""

from __future__ import annotations

from dash import Dash

from app.pages.page import Page
from app.pages.paths import browser, callbacks, export
from app.pages.paths.layout import layout
from app.services import Services
from app.urlstate import PATHS_PATH


def register(app: Dash, services: Services) -> None:
    """The page's callbacks."""
    browser.register(app)
    callbacks.register(app, services)
    export.register(app, services)


PAGE = Page(name="Paths", path=PATHS_PATH, layout=layout, register=register)
