"""Addresses of the Heads page; and what its views give, by panel, for lines that give the same (test_python.py)."""

from __future__ import annotations

from typing import Any

from aotlens.views import View
from app.core import head_maps
from app.core.inference import PromptResult
from app.pages.heads.address import ADDRESS, HeadsState
from app.pages.heads.continuations import draws_of
from app.pages.heads.ids import VIEWS, ids
from app.shell.app import App
from tests.app.conftest import wait

SHORT = "The captain bowed to the captain."


def heads(**state: Any) -> str:
    """The address of a choice, by default on a short text."""
    return ADDRESS.format(HeadsState(**{"checkpoint": "tiny-mhsa", "text": SHORT, **state}))


def _ablated(app: App, at: HeadsState) -> PromptResult:
    return app.core.inference.analyse(at.checkpoint, at.text or "", off=at.off, how=at.how, corpus=at.corpus)


def _shown(panel: str, view: View) -> Any:
    def expected(app: App, at: HeadsState) -> Any:
        service = app.services["heads"]
        chosen = service.score_of_address(at) if panel == ids.WHY else service.of_address(at)
        return view.frame(service.workshop.result(view, chosen))

    return expected


def _continued(app: App, at: HeadsState) -> dict[str, str]:
    service = app.services["heads"].continuations
    draws = draws_of(at.new, at.temperature, at.top_k, at.seed, at.stop)
    made = service.so_far(wait(service.start(_ablated(app, at), draws, "")))
    return {name: service.text(made, run) for run, name in enumerate(("whole", "without"))}


EXPECTED: dict[str, Any] = {
    **{panel: _shown(panel, view) for panel, view in VIEWS.items()},
    ids.GRID: lambda app, at: head_maps.values(_ablated(app, at), at.view),
    ids.CONTINUE: _continued,
}
