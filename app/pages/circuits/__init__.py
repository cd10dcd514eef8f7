"""Circuits: what a head looks for and what it writes, read from the weights.

layout.py      what is there
callbacks.py   which circuit, and its maps
lines.py       tables of entries, of a row and of a column
structure.py   spectra, and the heads around this one
browser.py     pick tokens and blocks, walk, write the address
export.py      files
"""

from __future__ import annotations

from dash import Dash

from app.pages.circuits import browser, callbacks, export, lines, structure
from app.pages.circuits.layout import layout
from app.pages.page import Page
from app.services import Services
from app.urlstate import CIRCUITS_PATH


def register(app: Dash, services: Services) -> None:
    """The page's callbacks."""
    browser.register(app)
    callbacks.register(app, services)
    lines.register(app, services)
    structure.register(app, services)
    export.register(app, services)


PAGE = Page(name="Circuits", path=CIRCUITS_PATH, layout=layout, register=register)
