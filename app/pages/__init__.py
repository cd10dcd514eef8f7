"""The pages, in the order of the navigation: a folder each, which holds all that the page is.

A new page is a folder with a `PAGE` (app/shell/page.py says what that is), and its name below. One that is made of
views needs no more than its `__init__.py` (app/shell/view_page.py; `sufficient` is one). In any other folder:

address.py     what its address says, declared once
ids.py         its components' ids
service.py     what computes for it, from the core; no Dash
layout.py      what is there
callbacks.py   what it asks of the server
words.py       sentences about results
files.py       what can be saved, unless its panels show views (app/shell/views.py)
NAME.js, NAME.css  what happens in the browser, and how it looks
"""

from __future__ import annotations

from importlib import import_module

from app.shell.page import Page

_NAMES = (
    "heads",
    "atlas",
    "images",
    "compare",
    "circuits",
    "trigrams",
    "paths",
    "patching",
    "distillation",
    "sufficient",
    "nonlinearity",
    "subspaces",
    "denoising",
    "regression",
    "checkpoints",
)

PAGES: tuple[Page, ...] = tuple(import_module(f"app.pages.{name}").PAGE for name in _NAMES)
