"""What the page Patching shows, by panel, for the lines that give the same (tests/app/test_python.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlens.views import View
from aotlens.views.patching import FAMILY
from app.pages.patching import PAGE
from app.shell.app import App

STATE = PAGE.address.state(
    {
        "checkpoint": "tiny-mhsa", "clean": "The captain bowed to Emma.", "corrupted": "The captain towed to Emma.",
        "answer": "t", "wrong": "s", "metric": "loss", "direction": "noising", "heads": "k",
    }
)  # fmt: skip


def _table(view: View) -> Callable[[App, Any], Any]:
    def table(app: App, at: Any) -> Any:
        service = app.services["patching"]
        workshop = service.workshop.told(lambda done, total: None)  # as a job of the background does
        return view.frame(workshop.result(view, service.values(PAGE.address.json(at))))

    return table


EXPECTED = {f"patching-{view.name}": _table(view) for view in FAMILY.views}
