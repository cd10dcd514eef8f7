"""Sufficient heads: a task, the smallest set of heads that does it, and which of them are necessary."""

from __future__ import annotations

from aotlens.views.sufficient import FAMILY
from app.shell.view_page import view_page

PAGE = view_page(FAMILY, "Sufficient heads", file=__file__)
