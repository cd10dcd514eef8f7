"""Checkpoints: what there is, how well it does, its card, training curve and parameters.

layout.py      what is there
callbacks.py   a checkpoint's card, curve and parameters
"""

from __future__ import annotations

from dash import Dash

from app.pages.checkpoints import callbacks
from app.pages.checkpoints.layout import layout
from app.pages.page import Page
from app.services import Services
from app.urlstate import CHECKPOINTS_PATH


def register(app: Dash, services: Services) -> None:
    """The page's callbacks."""
    callbacks.register(app, services)


PAGE = Page(name="Checkpoints", path=CHECKPOINTS_PATH, layout=layout, register=register)
