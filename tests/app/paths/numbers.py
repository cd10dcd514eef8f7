"""What the Paths page's views give, by panel, for the lines that give the same (tests/app/test_python.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlens.views import View
from app.pages.paths.address import PathsState
from app.pages.paths.ids import SCORE_VIEWS, VIEWS, ids
from app.shell.app import App


def _shown(view: View, of: str) -> Callable[[App, PathsState], Any]:
    def expected(app: App, at: PathsState) -> Any:
        service = app.services["paths"]
        return view.frame(service.workshop.result(view, getattr(service, of)(at)))

    return expected


EXPECTED: dict[str, Any] = {
    **{panel: _shown(view, "of_address") for panel, view in VIEWS.items() if panel != ids.PANEL},
    **{panel: _shown(view, "score_of_address") for panel, view in SCORE_VIEWS.items() if panel != ids.SCORE},
}
