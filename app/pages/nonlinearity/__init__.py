"""Non-linearity: a feed-forward network compiled into attention.

layout.py      what is there
callbacks.py   a network, how it is compiled, η; what of the model is looked at
browser.py     draw, slide η, write the address
export.py      files
"""

from __future__ import annotations

from dash import Dash

from app.pages.nonlinearity import browser, callbacks, export
from app.pages.nonlinearity.layout import layout
from app.pages.page import Page
from app.services import Services
from app.urlstate import NONLINEARITY_PATH


def register(app: Dash, services: Services) -> None:
    """The page's callbacks."""
    browser.register(app)
    callbacks.register(app, services)
    export.register(app, services)


PAGE = Page(name="Non-linearity", path=NONLINEARITY_PATH, layout=layout, register=register)
