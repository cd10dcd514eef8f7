"""What the page Lenses shows, by panel, for the lines that give the same (tests/app/test_python.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlens.views import View
from aotlens.views.lens import FAMILY
from app.pages.lens import PAGE
from app.shell.app import App

STATE = PAGE.address.state(
    {"checkpoint": "tiny-mhsa", "text": "The captain bowed.", "position": "3", "answer": "t", "wrong": "s", "layer": 1}
)


def _table(view: View) -> Callable[[App, Any], Any]:
    def table(app: App, at: Any) -> Any:
        service = app.services["lens"]
        return view.frame(service.workshop.result(view, service.values(PAGE.address.json(at))))

    return table


EXPECTED = {f"lens-{view.name}": _table(view) for view in FAMILY.views}
