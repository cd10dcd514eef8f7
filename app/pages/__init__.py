"""The pages, in the order of the navigation: a module or a folder each, which contains all that the page is.

A new page is a module with a `PAGE` (app/shell/page.py says what that is), and its name in a group below. One that is
made of views is a declaration (app/shell/view_page.py; `regression` is one). Pages that are older have a folder with:

address.py     what its address says, declared once
ids.py         its components' ids
service.py     what computes for it, from the core; no Dash
layout.py      what is there
callbacks.py   what it asks of the server
captions.py    sentences about results
tables.py      their tables
python.py      the Python that gives them, and files.py what can be saved, unless its panels show views
NAME.js, NAME.css  what happens in the browser, and how it looks
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

from app.shell.page import Page

#: The pages of the menu by what they are about, in the order of a day's work: the first is what `/?…` shows.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "Heads": ("heads", "compare", "universality", "atlas", "training", "patching", "lens"),
    "Circuits": ("circuits", "trigrams", "paths", "sufficient"),
    "MSSA and FFN": ("distillation", "nonlinearity"),
    "Theory": ("subspaces", "denoising", "regression"),
    "Images": ("images",),
    "Checkpoints": ("checkpoints",),
}

_NAMES = [name for names in GROUPS.values() for name in names]
#: All pages; the last is what `/` shows.
PAGES: tuple[Page, ...] = tuple(import_module(f"app.pages.{name}").PAGE for name in (*_NAMES, "start"))


def grouped(pages: Sequence[Page]) -> dict[str, list[Page]]:
    """Group the pages of the menu, in their order; one that is in no group is one by itself."""
    of = {name: group for group, names in GROUPS.items() for name in names}
    groups: dict[str, list[Page]] = {}
    for page in pages:
        if page.in_navigation:
            groups.setdefault(of.get(page.name, page.title), []).append(page)
    return groups
