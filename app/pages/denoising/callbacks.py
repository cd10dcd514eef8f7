"""What the In-context denoising page asks of the server: a prompt in the plane, and the way of a query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from dash import ctx, html, no_update

from aotlens.plots import Theme
from app.core import Core
from app.core.errors import RequestError
from app.core.files import File
from app.pages.denoising import figures, files, training_callbacks, words
from app.pages.denoising.address import PARAMETERS, DenoisingState
from app.pages.denoising.ids import ids
from app.pages.denoising.service import Denoising, from_dict, from_form, to_dict
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.props import props, stores, values
from app.shell.sharing import save_files, show_values

SLIDERS = {name: getattr(ids, name.upper()) for name in PARAMETERS}


def register(app: App, core: Core, service: Denoising) -> None:
    """The page's callbacks."""
    show_values(app, list(SLIDERS.values()))
    _register_plane(app, service)
    training_callbacks.register(app, service.trainings)
    save_files(
        app,
        {entry: partial(make_file, service, entry) for entry in _FILES},
        stores(shown=ids.SHOWN, query=ids.QUERY),
    )


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
        state = from_form(**form)
        changed = set(ctx.triggered_prop_ids.values()) - {ids.QUERY, shell.THEME}
        # Scales that are good for one task or energy say nothing on another. A page that is new names all its inputs.
        if ids.BEST in changed or changed in ({ids.TASK}, {ids.ENERGY}):
            alpha, beta = service.best(state)
            state = replace(state, alpha=alpha, beta=beta)
        placed = from_dict(to_dict(state), query)
        said = words.meaning(placed, service.plane(placed), service.descent(placed))
        return {
            "shown": to_dict(state),
            "alpha": state.alpha,
            "beta": state.beta,
            "plane": figures.plane_figure(service, placed, theme),
            "errors": figures.errors_figure(service, placed, theme),
            "body": [html.Div(line) for line in said],
        }


_FILES: dict[str, Callable[[Denoising, DenoisingState], File]] = {
    shell.export(ids.PLANE, "csv"): files.plane_csv,
    shell.export(ids.ERRORS, "csv"): files.errors_csv,
}


def make_file(service: Denoising, entry: str, shown: Any, query: Any) -> File:
    """The file for an entry of an export menu."""
    state = chosen(shown, query)
    if state is None:
        raise RequestError("Nothing is shown, so there is nothing to save: put right what is wrong above.")
    return _FILES[entry](service, state)


def chosen(shown: Any, query: Any) -> DenoisingState | None:
    """What the plane shows; None where there is nothing."""
    return from_dict(shown, query) if shown else None
