"""Callbacks of the In-context regression page: errors of the models, and what one of them does."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from dash import html, no_update

from aotlens.plots import Theme
from aotlens.views import View
from aotlens.views.regression import ERRORS, PARAMETERS, of_task
from app.core import Core
from app.pages.regression import maps
from app.pages.regression.address import ADDRESS, RegressionState
from app.pages.regression.ids import PANELS, ids
from app.pages.regression.service import Regressions
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.page import python_of
from app.shell.props import stores, values
from app.shell.sharing import save_files, show_values, when_seen
from app.shell.views import picture, python_lines, show_views, tables

SLIDERS = {name: getattr(ids, name.upper()) for name in PARAMETERS}
_VIEWS = {ids.ERRORS: ERRORS, **PANELS}


def register(app: App, core: Core, service: Regressions) -> None:
    """Register the page's callbacks."""
    show_values(app, [ids.DIMS, ids.NONZERO, *SLIDERS.values()])
    when_seen(app, ids.SHOWN, (ids.GRID, ids.MAP))
    _register_errors(app, core, service)
    chosen = values(how=ids.HOW, axis=ids.AXIS)
    show_views(app, service.workshop, PANELS, service.values, shown=ids.SHOWN, keys=ids.DRAWN, inputs=chosen)
    maps.register(app, service)
    save_files(
        app, tables(service.workshop, _VIEWS, service.values),
        stores(shown=ids.SHOWN) | chosen,
    )  # fmt: skip
    save_files(
        app, {shell.export(ids.MAP, "csv"): partial(maps.make_file, service)},
        stores(shown=ids.SHOWN, head=ids.HEAD) | values(prompt=ids.PROMPT),
    )  # fmt: skip


@python_of(*_VIEWS, ids.GRID, ids.MAP)
def python(core: Core, service: Regressions, state: RegressionState, panel: str) -> list[str]:
    """Return the lines that give a panel's numbers."""
    chosen = service.chosen(state)
    view: View | None = _VIEWS.get(panel)
    return maps.python(chosen, state, panel) if view is None else python_lines(view, chosen)


def _register_errors(app: App, core: Core, service: Regressions) -> None:
    @guarded(
        app,
        panel=ids.ERRORS,
        inputs=values(
            d=ids.D, models=ids.MODELS, checkpoint=ids.CHECKPOINT, dims=ids.DIMS, nonzero=ids.NONZERO, axis=ids.AXIS,
            **SLIDERS,
        )
        | stores(theme=shell.THEME),
        state=stores(before=ids.SHOWN),
        output=stores(shown=ids.SHOWN, offered=ids.MODELS, looked=ids.CHECKPOINT)
        | values(models=ids.MODELS, checkpoint=ids.CHECKPOINT, dims=ids.DIMS, nonzero=ids.NONZERO)
        | {
            "most_dims": (ids.DIMS, "max"), "most_nonzero": (ids.NONZERO, "max"),
            "one_dim": (ids.DIMS, "disabled"), "one_weight": (ids.NONZERO, "disabled"),
        },
        parts=("figure", "body", "caption"),
        empty=dict.fromkeys(("offered", "looked"), no_update),
    )  # fmt: skip
    def draw(d: str | None, theme: Theme, before: Any, **form: Any) -> Answer:
        if d is None:
            return None  # the panel says that there are no models
        if before is not None and before["d"] != int(d):
            form |= {"dims": None, "nonzero": None}  # sliders of other models end elsewhere
        form |= {name: parameter.within(form[name]) for name, parameter in PARAMETERS.items()}
        chosen = service.chosen(ADDRESS.state(form), int(d))
        names = list(service.by_width()[chosen.d])
        models, dims = list(chosen.models), chosen.dims or chosen.d
        task = {name: getattr(chosen, name) for name in ("dims", "nonzero", *PARAMETERS)}
        drawn = picture(service.workshop, ERRORS, chosen, theme)
        return {
            "shown": {
                **task, "models": models, "checkpoint": chosen.checkpoint, "d": chosen.d,
                "named": [] if names == models else models,
            },
            "offered": names, "looked": names, "models": models, "checkpoint": chosen.checkpoint, "dims": dims,
            "nonzero": chosen.nonzero or dims, "most_dims": max(chosen.d, 2), "most_nonzero": max(chosen.d, 2),
            "one_dim": chosen.d < 2, "one_weight": chosen.d < 2,
            "figure": drawn["figure"],
            "body": [html.Div(line) for line in (drawn["caption"], of_task(chosen))],
            "caption": trained_on(core.catalog.info(chosen.checkpoint).recipe),
        }  # fmt: skip


def trained_on(recipe: Mapping[str, Any]) -> str:
    """Say what a model was trained on, as far as its checkpoint says; nothing where it doesn't."""
    prompts = recipe.get("prompts")
    if not prompts:
        return ""
    weights = f"{prompts['n_nonzero']} weights that count" if prompts.get("n_nonzero") else "all weights counting"
    noise = f"noise {prompts['noise_std']:g}" if prompts.get("noise_std") else "no noise"
    return f"It was trained on inputs N(0, I) in {prompts['d']} dimensions, {weights}, {noise}."
