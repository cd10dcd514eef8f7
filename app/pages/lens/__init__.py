"""Lenses: what the residual stream says at each layer, and what a step in it does."""

from __future__ import annotations

from aotlens.views import lens
from app.shell.view_page import view_page

PAGE = view_page(lens.FAMILY, "Lenses", file=__file__)
