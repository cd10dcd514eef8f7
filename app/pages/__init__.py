"""The pages, in the order of the navigation: a module or a folder each, which contains all that the page is.

A family of views that has a `title` has a page of them (app/shell/view_page.py). A page with an arrangement of its own
(`regression` is one), or of other things, is a module with a `PAGE` (app/shell/page.py says what that is), and its name
in a group below. Pages that are older have a folder with:

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

from aotlens.views import FAMILIES
from aotlens.views import family as family_of
from app.shell.page import Page
from app.shell.view_page import view_page

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
PAGES: tuple[Page, ...] = (
    *(import_module(f"app.pages.{name}").PAGE for name in _NAMES),
    *(view_page(family, family.title) for family in map(family_of, FAMILIES) if family.title),
    import_module("app.pages.start").PAGE,
)


def grouped(pages: Sequence[Page]) -> dict[str, list[Page]]:
    """Group the pages of the menu, in their order; one that is in no group is one by itself."""
    of = {name: group for group, names in GROUPS.items() for name in names}
    groups: dict[str, list[Page]] = {}
    for page in pages:
        if page.in_navigation:
            groups.setdefault(of.get(page.name, page.title), []).append(page)
    return groups
