"""Callbacks of the Subspace denoising page: a mixture, and pictures of it at all layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dash import html, no_update

from aotlens.plots import Theme
from aotlens.views import View
from aotlens.views.subspaces import CONDITIONS, PARAMETERS, SNR, Chosen, by_layer
from app.core import Core
from app.pages.subspaces import audit_callbacks
from app.pages.subspaces.address import SubspacesState
from app.pages.subspaces.audit_python import audit_python
from app.pages.subspaces.ids import VIEWS, ids
from app.pages.subspaces.service import Subspaces, chosen_of, from_form
from app.pages.subspaces.tables import conditions_table
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.page import python_of
from app.shell.props import children, props, stores, values
from app.shell.sharing import save_files, show_values
from app.shell.views import picture, python_lines, tables

_FIGURES = {"cloud": ids.CLOUD, "snr": ids.SNR, "membership": ids.MEMBERSHIP}
SLIDERS = {name: getattr(ids, name.upper()) for name in PARAMETERS}


def register(app: App, core: Core, service: Subspaces) -> None:
    """Register the page's callbacks."""
    _register_pictures(app, service)
    audit_callbacks.register(app, service.audits)
    show_values(app, [*SLIDERS.values(), ids.LAYER])
    save_files(
        app,
        tables(service.workshop, VIEWS, service.values),
        stores(shown=ids.SHOWN) | values(layer=ids.LAYER, picture=ids.PICTURE, head=ids.HEAD),
    )


def _register_pictures(app: App, service: Subspaces) -> None:
    # One answer for all that a slider changes: each callback costs a round trip, and Dash's renderer dozens of steps.
    # The whole of it, whatever was changed: of two questions on their way Dash drops the first one's answer.
    @guarded(
        app,
        panel=ids.PANEL,
        inputs=values(**SLIDERS, phi=ids.PHI, bases=ids.BASES, picture=ids.PICTURE, head=ids.HEAD)
        | stores(theme=shell.THEME),
        state=values(layer=ids.LAYER),
        output=stores(shown=ids.SHOWN, heads=ids.HEAD)
        | children(captions=ids.CAPTIONS, title=shell.title(ids.MEMBERSHIP), conditions=shell.body(ids.CONDITIONS))
        | values(layer=ids.LAYER, head=ids.HEAD)
        | props("disabled", unused=ids.THRESHOLD)
        | {"last": (ids.LAYER, "max"), "marks": (ids.LAYER, "marks")}
        | props(
            "figure", cloud=shell.graph(ids.CLOUD), snr=shell.graph(ids.SNR), membership=shell.graph(ids.MEMBERSHIP)
        ),
        parts=("body",),
        empty={"heads": no_update, "title": no_update},
    )
    def draw(layer: Any, head: Any, picture: Any, theme: Theme, **form: Any) -> Answer:
        stored = from_form(**form)
        chosen = service.values(stored, layer=layer, head=head or 1, picture=picture)
        unrolling = service.unroll(chosen)
        last = len(unrolling.tokens) - 1
        drawn = {name: _figure(service, VIEWS[panel], chosen, theme) for name, panel in _FIGURES.items()}
        rows = service.workshop.result(CONDITIONS, chosen).to_frame().to_dict("records")
        return {
            "shown": stored,
            "body": html.Div(SNR.caption(chosen, unrolling)),
            "captions": [html.Div(line, hidden=True) for line in by_layer(unrolling)],
            "last": last,
            "marks": [{"value": number, "label": str(number)} for number in range(last + 1)],
            "layer": chosen.layer,
            "head": str(chosen.subspace),
            "heads": [{"value": str(number), "label": str(number)} for number in range(1, chosen.clusters + 1)],
            "unused": chosen.phi == "softmax",
            **drawn,
            "conditions": conditions_table(rows),
            "title": f"Memberships φ in subspace {chosen.subspace}",
        }


def _figure(service: Subspaces, view: View, chosen: Chosen, theme: Theme) -> Any:
    """Return the figure with what the browser knows it by, once it is drawn, and the layer that it stands at."""
    figure = picture(service.workshop, view, chosen, theme)["figure"]
    # The key is of all layers: the one that it stands at is no other figure.
    key = f"{theme} {view.key(replace(chosen, layer=0))}"
    figure.layout.meta = {**figure.layout.meta, "layer": chosen.layer, "key": key}
    return figure


@python_of(*VIEWS, ids.RATIOS, ids.PRINCIPAL, ids.LAYERS_TABLE)
def python(core: Core, service: Subspaces, state: SubspacesState, panel: str) -> list[str]:
    """Write the lines that give a panel's numbers."""
    if panel not in VIEWS:
        return audit_python(core, state, panel)
    return python_lines(VIEWS[panel], service.within(chosen_of(state)))
