"""The pages, in the order of the navigation.

heads.py         every head's attention on text that you type: its layout; heads_callbacks.py what it asks of the
                 server, heads_browser.py what the browser does alone, heads_export.py files
circuits.py      what a head looks for and writes, from the weights: its layout; circuits_callbacks.py which circuit
                 and its maps, circuits_lines.py its tables, circuits_structure.py spectra and neighbours,
                 circuits_browser.py, circuits_export.py
paths.py         which ways a logit came: its layout; paths_callbacks.py, paths_browser.py, paths_export.py
trigrams.py      a head's skip-trigrams and their evidence in text: its layout; trigrams_callbacks.py which table,
                 which text, how far; trigrams_views.py one row and kinds, trigrams_browser.py, trigrams_export.py
checkpoints.py   which models there are
guard.py         what a callback does with an error
router.py        address -> page
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dash import Dash

from app.pages import checkpoints, circuits, heads, paths, trigrams
from app.services import Services
from app.urlstate import CHECKPOINTS_PATH, CIRCUITS_PATH, HEADS_PATH, PATHS_PATH, TRIGRAMS_PATH


@dataclass(frozen=True, kw_only=True)
class Page:
    """A view: where it is, what it looks like for an address's query, and its callbacks."""

    name: str
    path: str
    layout: Callable[[Services, str | None], Any]
    register: Callable[[Dash, Services], None]


PAGES = (
    Page(name="Heads", path=HEADS_PATH, layout=heads.layout, register=heads.register),
    Page(name="Circuits", path=CIRCUITS_PATH, layout=circuits.layout, register=circuits.register),
    Page(name="Skip-trigrams", path=TRIGRAMS_PATH, layout=trigrams.layout, register=trigrams.register),
    Page(name="Paths", path=PATHS_PATH, layout=paths.layout, register=paths.register),
    Page(name="Checkpoints", path=CHECKPOINTS_PATH, layout=checkpoints.layout, register=checkpoints.register),
)
