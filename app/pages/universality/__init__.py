"""Universality: several models, and which heads of one come again in others."""

from __future__ import annotations

from aotlens.views.universality import FAMILY
from app.shell.view_page import view_page

PAGE = view_page(FAMILY, "Universality", file=__file__)
