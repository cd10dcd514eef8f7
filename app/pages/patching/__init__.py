"""Patching: what of a clean prompt brings its answer back into a corrupted one."""

from __future__ import annotations

from aotlens.views import patching
from app.shell.view_page import view_page

PAGE = view_page(patching.FAMILY, "Patching", file=__file__)
