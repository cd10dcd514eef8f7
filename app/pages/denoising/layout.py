"""The In-context denoising page's layout."""

from __future__ import annotations

import dash_mantine_components as dmc
from dash import dcc, html

from aotlens.views.denoising import ENERGIES, ERRORS, PARAMETERS, PLANE, TASKS
from app.core import Core
from app.pages.denoising import explanations
from app.pages.denoising.address import DenoisingState
from app.pages.denoising.ids import ids
from app.pages.denoising.service import Denoising
from app.pages.denoising.training_layout import training_tab
from app.shell import ids as shell
from app.shell.controls import labelled, parameter_slider, segments
from app.shell.panel import panel, tabs
from app.shell.views import view_panel


def layout(core: Core, service: Denoising, state: DenoisingState) -> html.Div:
    """Lay out the page for an address; with nothing in it, the circle of Figure 5."""
    return html.Div(
        [
            html.H1("In-context denoising", className="sr-only"),
            dcc.Store(id=ids.SHOWN),
            dcc.Store(id=ids.QUERY, data=None if state.query is None else list(state.query)),
            dcc.Store(id=ids.PICKED),
            dcc.Store(id=ids.PICTURES),
            tabs(
                ids.TAB,
                state.tab,
                {
                    "energy": ("Energy of a context", _energy(state)),
                    "training": ("Trained layers", training_tab(service, state)),
                },
                label="In-context denoising",
            ),
        ],
        id=ids.PAGE,
        className="denoising-page",
        **{"data-empty": "", "data-task": state.task},
    )


def _energy(state: DenoisingState) -> html.Div:
    return html.Div(
        [
            _parameters(state),
            panel(
                ids.PANEL, "Attention as one step down an energy", explanations.PANEL,
                html.Div(id=shell.body(ids.PANEL), className="meaning", role="status"),
            ),
            view_panel(
                ids.PLANE, PLANE, "graph-plane", captioned=False,
                controls=dmc.Button("Query as drawn", id=ids.DRAWN, n_clicks=0, size="compact-xs", variant="default"),
            ),
            view_panel(ids.ERRORS, ERRORS, "graph-plane", captioned=False),
        ],
        className="denoising-energy",
    )  # fmt: skip


def _parameters(state: DenoisingState) -> html.Section:
    boxes = {
        name: html.Div(
            parameter_slider(getattr(ids, name.upper()), each, getattr(state, name)), className=f"for-{name}"
        )
        for name, each in PARAMETERS.items()
    }
    best = dmc.Button("The best α and β", id=ids.BEST, n_clicks=0, size="compact-sm", variant="default")
    energy = dmc.Select(
        id=ids.ENERGY, data=[{"value": name, "label": label} for name, label in ENERGIES.items()],
        value=state.energy, allowDeselect=False, size="xs", **{"aria-label": "Attention and its energy"},
    )  # fmt: skip
    return html.Section(
        [
            segments(ids.TASK, "Task", state.task, TASKS, size="xs"),
            labelled("Attention, and its energy", energy),
            *(boxes.pop(name) for name in ("tokens", "noise", "components", "alpha", "beta")),
            best,
            *boxes.values(),
        ],
        className="panel denoising-parameters",
        **{"aria-label": "Parameters"},
    )
