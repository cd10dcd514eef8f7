"""Patching: what of a clean prompt brings its answer back into a corrupted one."""

from __future__ import annotations

from aotlens.views import patching as views
from app.shell.arrange import FORM_WIDTHS, Columns, Form, Panel, Rows, Tabs
from app.shell.view_page import view_page

PAGE = view_page(
    views.FAMILY,
    "Patching",
    arranged=Columns(
        Form(),
        Rows(
            Panel(views.STREAM, size="low", controls=("stream", "by")),
            Panel(views.TOKENS),
            Tabs("tab", label="Heads, edges and circuits", sections={
                "heads": ("Heads and edges", Columns(
                    Panel(views.OF_HEADS, controls=("heads", "position")),
                    Panel(views.EDGES, controls=("head",)),
                )),
                "circuit": (views.CIRCUIT.title, Panel(views.CIRCUIT, controls=("keep", "removed"))),
                "estimate": (views.ESTIMATE.title, Panel(views.ESTIMATE, reads=("heads",))),
            }),
        ),
        widths=FORM_WIDTHS,
    ),
)  # fmt: skip
