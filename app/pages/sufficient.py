"""Sufficient heads: a task, the smallest set of heads that does it, and which of them are necessary."""

from __future__ import annotations

from aotlens.views import sufficient as views
from app.shell.arrange import Columns, Form, Panel, Rows
from app.shell.view_page import view_page

PAGE = view_page(
    views.FAMILY,
    "Sufficient heads",
    arranged=Rows(Form(), Columns(Panel(views.SUFFICIENT, controls=("keep",)), Panel(views.SHAPLEY))),
)
