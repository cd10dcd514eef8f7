"""What the In-context denoising page's views give, by panel, for the lines that give the same
(tests/app/test_python.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlens.views import View
from app.pages.denoising.address import DenoisingState
from app.pages.denoising.ids import PLANE_VIEWS, TRAINING_VIEWS
from app.pages.denoising.service import in_plane
from app.shell.app import App

Expected = Callable[[App, Any], Any]
STATE = DenoisingState(task="mixtures", energy="hopfield", alpha=0.3, beta=0.2, steps=3, seed=5, run=2)


def _training_table(view: View) -> Expected:
    def expected(app: App, at: DenoisingState) -> Any:
        trainings = app.services["denoising"].trainings
        return view.frame(trainings.workshop.result(view, trainings.picked(at)))

    return expected


def _plane_table(view: View) -> Expected:
    return lambda app, at: view.frame(app.services["denoising"].workshop.result(view, in_plane(at)))


EXPECTED: dict[str, Expected] = {
    **{panel: _training_table(view) for panel, view in TRAINING_VIEWS.items()},
    **{panel: _plane_table(view) for panel, view in PLANE_VIEWS.items()},
}
