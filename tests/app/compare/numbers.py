"""What the Compare page's views give, by panel, for the lines that give the same (tests/app/test_python.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlens.views import View
from app.core.own_texts import key_of
from app.pages.compare.address import CompareState
from app.pages.compare.ids import VIEWS
from app.shell.app import App


def state(text: str, book: str) -> CompareState:
    """Two models, one of them with heads replaced from a text of somebody's own."""
    return CompareState(
        left="tiny-mhsa", right="tiny-mssa", right_off=((0, 1), (1, 0)), how="position_mean", corpus=key_of(book),
        text=text, head=(1, 2), view="weighted", hide_first=True,
    )  # fmt: skip


def _shown(view: View) -> Callable[[App, CompareState], Any]:
    def expected(app: App, at: CompareState) -> Any:
        service = app.services["compare"]
        return view.frame(service.workshop.result(view, service.of_address(at)))

    return expected


EXPECTED: dict[str, Any] = {panel: _shown(view) for panel, view in VIEWS.items()}
