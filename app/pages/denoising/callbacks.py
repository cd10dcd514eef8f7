"""Callbacks of the In-context denoising page: a prompt in the plane, and the way of a query."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dash import ctx, html, no_update

from aotlens.plots import Theme
from aotlens.views.denoising import ERRORS, PARAMETERS, PLANE
from app.core import Core
from app.pages.denoising import training_callbacks
from app.pages.denoising.address import DenoisingState
from app.pages.denoising.ids import FORM, PLANE_VIEWS, TRAINING_VIEWS, ids
from app.pages.denoising.service import Denoising, in_plane
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.page import python_of
from app.shell.props import props, stores, values
from app.shell.sharing import save_files, show_values
from app.shell.views import picture, tables

SLIDERS = {name: getattr(ids, name.upper()) for name in PARAMETERS}


def register(app: App, core: Core, service: Denoising) -> None:
    """Register the page's callbacks."""
    show_values(app, list(SLIDERS.values()))
    _register_plane(app, service)
    training_callbacks.register(app, service.trainings)
    files = tables(service.workshop, PLANE_VIEWS, service.values)
    save_files(app, files, stores(shown=ids.SHOWN, query=ids.QUERY))


@python_of(*PLANE_VIEWS, *TRAINING_VIEWS)
def python(core: Core, service: Denoising, state: DenoisingState, panel: str) -> list[str] | None:
    """Write the lines that give a panel's numbers."""
    if panel in PLANE_VIEWS:
        return PLANE_VIEWS[panel].python(in_plane(state)).splitlines()
    picked = service.trainings.picked(state)
    return None if picked is None else TRAINING_VIEWS[panel].python(picked).splitlines()


def _register_plane(app: App, service: Denoising) -> None:
    # One answer for all that a slider changes: each callback costs a round trip, and Dash's renderer dozens of steps.
    @guarded(
        app,
        panel=ids.PANEL,
        inputs=values(**SLIDERS, task=ids.TASK, energy=ids.ENERGY)
        | props("n_clicks", best=ids.BEST)
        | stores(query=ids.QUERY, theme=shell.THEME),
        output=stores(shown=ids.SHOWN)
        | values(alpha=ids.ALPHA, beta=ids.BETA)
        | props("figure", plane=shell.graph(ids.PLANE), errors=shell.graph(ids.ERRORS)),
        parts=("body",),
        empty={"alpha": no_update, "beta": no_update},
    )
    def draw(best: Any, query: Any, theme: Theme, **form: Any) -> Answer:
        asked = service.asked(**form)
        changed = set(ctx.triggered_prop_ids.values()) - {ids.QUERY, shell.THEME}
        # Scales that are good for one task or energy say nothing on another. A page that is new names all its inputs.
        if ids.BEST in changed or changed in ({ids.TASK}, {ids.ENERGY}):
            asked = replace(asked, **service.best(asked))
        stored = {**{name: getattr(asked, name) for name in FORM}, "components": form["components"]}
        placed = service.values(stored, query)
        plane, errors = (picture(service.workshop, view, placed, theme) for view in (PLANE, ERRORS))
        return {
            "shown": stored,
            "alpha": asked.alpha,
            "beta": asked.beta,
            "plane": plane["figure"],
            "errors": errors["figure"],
            "body": [html.Div(line) for line in (errors["caption"], plane["caption"])],
        }
