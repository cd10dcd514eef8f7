"""What the page Universality shows, by panel, for the lines that give the same (tests/app/test_python.py)."""

from __future__ import annotations

from typing import Any

from aotlens.views import View
from aotlens.views.universality import GROUPS, LAYERS, PAIRS
from app.pages.universality import PAGE
from app.shell.app import App

STATE = PAGE.address.state({"models": ["tiny-mhsa", "tiny-mssa"], "text": "repeats", "evidence": "pattern, ov"})


def _table(view: View) -> Any:
    def table(app: App, at: Any) -> Any:
        service = app.services["universality"]
        return view.frame(service.workshop.told(lambda *_: None).result(view, service.values(PAGE.address.json(at))))

    return table


EXPECTED = {f"universality-{view.name}": _table(view) for view in (GROUPS, PAIRS, LAYERS)}
