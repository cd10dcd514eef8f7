"""Universality: several models, and which heads of one are matched in others."""

from __future__ import annotations

from aotlens.views import universality as views
from app.shell.arrange import Form, Rows, Tabs
from app.shell.view_page import view_page

PAGE = view_page(
    views.FAMILY,
    "Universality",
    arranged=Rows(
        Form(),
        Tabs("tab", label="Of the models' heads", sections={
            view.name: (view.title, view) for view in views.FAMILY.views
        }),
    ),
)  # fmt: skip
