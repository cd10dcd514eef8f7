"""What the In-context regression page's service gives, by panel, for the lines that give the same
(tests/app/test_python.py)."""

from __future__ import annotations

from typing import Any

from app.pages.regression.address import RegressionState
from app.pages.regression.ids import ids
from app.shell.app import App

STATE = RegressionState(
    models=("regression-tiny", "regression-tied"), checkpoint="regression-tied", dims=2, nonzero=1, noise=0.25,
    scale=1.5, mean=0.5, skew=1.2, seed=3, head=(1, 2), prompt=4, query=5, view="weighted", how="position_mean",
)  # fmt: skip


def _asked(app: App, at: RegressionState) -> Any:
    service = app.services["regression"]
    return service, service.asked_of(at)


def _errors(app: App, at: RegressionState) -> Any:
    service, asked = _asked(app, at)
    return {each.name: each.to_frame() for each in service.errors(asked)}


def _maps(app: App, at: RegressionState) -> Any:
    service, asked = _asked(app, at)
    return service.prompt(asked, at.prompt).patterns.value_weighted()


EXPECTED: dict[str, Any] = {
    ids.ERRORS: _errors,
    ids.LAYERS: lambda app, at: (found := _asked(app, at))[0].readings(found[1]).probe_errors,
    ids.GRID: _maps,
    ids.MAP: lambda app, at: _maps(app, at)[at.head],
    ids.WITHOUT: lambda app, at: (found := _asked(app, at))[0].without(found[1], at.how).to_frame(),
    ids.MOTIFS: lambda app, at: (found := _asked(app, at))[0].motifs(found[1]).chance_frame(),
    ids.SUPPORT: lambda app, at: (found := _asked(app, at))[0].support(found[1]).to_frame(),
}
