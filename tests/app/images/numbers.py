"""What the Images page's service gives, by panel, for the lines that give the same (tests/app/test_python.py)."""

from __future__ import annotations

from typing import Any

from aotlens.views import View
from app.pages.images.address import ImagesState
from app.pages.images.ids import VIEWS
from app.shell.app import App

STATE = ImagesState(
    checkpoint="digits-tiny", data="digits", of=3, start=4, image=2, layer=1, head=2, patch=(1, 2), view="weighted",
    target=5, off=((0, 1), (1, 0)), how="position_mean",
)  # fmt: skip


def _of_view(view: View) -> Any:
    def expected(app: App, at: ImagesState) -> Any:
        service = app.services["images"]
        return view.frame(service.workshop.result(view, service.of_address(at)))

    return expected


EXPECTED: dict[str, Any] = {panel: _of_view(view) for panel, view in VIEWS.items()}
