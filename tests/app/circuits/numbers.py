"""What the Circuits page's views give, by panel, for the lines that give the same (tests/app/test_python.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlens.views import View
from app.pages.circuits.address import CircuitsState
from app.pages.circuits.ids import VIEWS
from app.shell.app import App


def _shown(view: View) -> Callable[[App, CircuitsState], Any]:
    def expected(app: App, at: CircuitsState) -> Any:
        service = app.services["circuits"]
        return view.frame(service.workshop.result(view, service.of_address(at)))

    return expected


EXPECTED: dict[str, Any] = {panel: _shown(view) for panel, view in VIEWS.items()}
