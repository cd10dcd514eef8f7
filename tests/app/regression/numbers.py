"""What the In-context regression page's service gives, by panel, for the lines that give the same
(tests/app/test_python.py)."""

from __future__ import annotations

from typing import Any

from aotlens.views.regression import ERRORS
from app.pages.regression.address import RegressionState
from app.pages.regression.ids import PANELS, ids
from app.shell.app import App

STATE = RegressionState(
    models=("regression-tiny", "regression-tied"), checkpoint="regression-tied", dims=2, nonzero=1, noise=0.25,
    scale=1.5, mean=0.5, skew=1.2, seed=3, head=(1, 2), prompt=4, query=5, view="weighted", how="position_mean",
)  # fmt: skip


def _table(panel: str) -> Any:
    view = ERRORS if panel == ids.ERRORS else PANELS[panel]

    def expected(app: App, at: RegressionState) -> Any:
        service = app.services["regression"]
        return view.frame(service.workshop.result(view, service.chosen(at)))

    return expected


def _maps(app: App, at: RegressionState) -> Any:
    service = app.services["regression"]
    return service.prompt(service.chosen(at), at.prompt).patterns.value_weighted()


EXPECTED: dict[str, Any] = {
    **{panel: _table(panel) for panel in (ids.ERRORS, *PANELS)},
    ids.GRID: _maps,
    ids.MAP: lambda app, at: _maps(app, at)[at.head],
}
