"""Distillation: can a small feed-forward network stand in for a head?

layout.py      what is there
callbacks.py   which results, which head, one head on a text
distil.py      a new distillation, in the background
browser.py     pick a head, run a text, write the address
export.py      files
"""

from __future__ import annotations

from dash import Dash

from app.pages.distillation import browser, callbacks, distil, export
from app.pages.distillation.layout import layout
from app.pages.page import Page
from app.services import Services
from app.urlstate import DISTILLATION_PATH


def register(app: Dash, services: Services) -> None:
    """The page's callbacks."""
    browser.register(app)
    callbacks.register(app, services)
    distil.register(app, services)
    export.register(app, services)


PAGE = Page(name="Distillation", path=DISTILLATION_PATH, layout=layout, register=register)
