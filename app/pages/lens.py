"""Lenses: what the residual stream says at each layer, and what a step in it does."""

from __future__ import annotations

from aotlens.views import lens as views
from app.shell.arrange import Columns, Form, Panel, Rows
from app.shell.view_page import view_page

PAGE = view_page(
    views.FAMILY,
    "Lenses",
    arranged=Rows(
        Form(),
        Panel(views.LENS),
        Columns(
            Panel(views.HEADS, controls=("position",)),
            Panel(views.JACOBIAN, controls=("answer", "wrong", "layer"), reads=("position",)),
        ),
    ),
)
