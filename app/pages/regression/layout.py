"""The In-context regression page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from aotlens.views.regression import (
    ERRORS,
    LAYERS,
    MOTIFS,
    N_SHOWN,
    PARAMETERS,
    STAND_INS,
    SUPPORT,
    WITHOUT,
    Chosen,
)
from app.core import Core
from app.core.errors import RequestError
from app.core.head_maps import QUANTITIES
from app.pages.regression.address import RegressionState
from app.pages.regression.ids import ids
from app.pages.regression.maps import GRID_ABOUT, MAP_ABOUT
from app.pages.regression.service import NO_MODEL, Regressions
from app.shell import ids as shell
from app.shell.controls import labelled, link_button, parameter_slider, slider, switch_of
from app.shell.graph import caption
from app.shell.notices import empty
from app.shell.panel import QUIET, panel, tabs
from app.shell.views import FILES, view_panel


def layout(core: Core, service: Regressions, state: RegressionState) -> html.Div:
    """Return the page for an address; with nothing in it, all models of the narrowest inputs."""
    try:
        asked = service.chosen(state)
    except RequestError:
        asked = None  # there are no models, which the panel says
    stores = {ids.SHOWN: None, ids.HEAD: list(state.head or (0, 0)), ids.DRAWN: None}
    sections = {
        "layers": ("Layers", view_panel(ids.LAYERS, LAYERS, "graph-regression", follows=ids.SHOWN)),
        "heads": ("Heads on a prompt", html.Div([_grid_panel(state), _map_panel(state)], className="regression-maps")),
        "without": ("Without a head", _without_panel(state)),
        "motifs": ("Motifs", view_panel(ids.MOTIFS, MOTIFS, "graph-heads", follows=ids.SHOWN)),
        "support": ("Support", view_panel(ids.SUPPORT, SUPPORT, "graph-heads", follows=ids.SHOWN)),
    }
    return html.Div(
        [
            html.H1("In-context regression", className="sr-only"),
            *(dcc.Store(id=name, data=data) for name, data in stores.items()),
            html.Div([_parameters(service, asked), _errors_panel(core, state, asked)], className="regression-columns"),
            tabs(ids.TABS, state.tab, sections, label="Of one model"),
        ],
        id=ids.PAGE,
        className="regression-page",
        **{"data-empty": "" if asked is None else None},
    )


def _parameters(service: Regressions, asked: Chosen | None) -> html.Section:
    by_width = service.by_width()
    d, widths = (1, []) if asked is None else (asked.d, [str(width) for width in by_width])
    models = [] if asked is None else list(by_width[asked.d])
    small: dict[str, Any] = {"size": "xs"}
    values = {} if asked is None else {name: getattr(asked, name) for name in PARAMETERS}
    whole = {"disabled": d < 2}
    controls = [
        dmc.Select(
            id=ids.D, label="Models that read", data=[{"value": n, "label": f"{n} numbers"} for n in widths],
            value=None if asked is None else str(d), allowDeselect=False, **small,
        ),
        dmc.MultiSelect(
            id=ids.MODELS, label="Compared", data=models, value=[] if asked is None else list(asked.models),
            hidePickedOptions=True, **small,
        ),
        slider(ids.DIMS, "Dimension of inputs", (asked and asked.dims) or d, 1, max(d, 2), 1, **whole),
        slider(ids.NONZERO, "Nonzero weights", (asked and asked.nonzero) or d, 1, max(d, 2), 1, **whole),
        *(
            parameter_slider(getattr(ids, name.upper()), each, values.get(name, each.first))
            for name, each in PARAMETERS.items()
        ),
    ]  # fmt: skip
    return html.Section(controls, className="panel regression-parameters", **{"aria-label": "Models and prompts"})


def _errors_panel(core: Core, state: RegressionState, asked: Chosen | None) -> html.Section:
    axis = switch_of(ids.AXIS, "Axis of errors", state.axis, {"linear": "linear", "log": "logarithmic"})
    before = [
        html.Div(id=shell.body(ids.ERRORS), className="meaning", role="status"),
        *([empty(NO_MODEL)] if asked is None else []),
    ]
    looked = html.Div(
        [
            labelled("Inspected model", _checkpoint(asked), size="xs"),
            link_button(ids.OPEN_CARD, "Model card", core.links.to("checkpoints")),
            caption(ids.ERRORS),
        ],
        className="regression-looked",
    )
    return view_panel(ids.ERRORS, ERRORS, "graph-regression", controls=axis, before=before, after=[looked])


def _checkpoint(asked: Chosen | None) -> dmc.Select:
    return dmc.Select(
        id=ids.CHECKPOINT, data=[] if asked is None else list(asked.models),
        value=None if asked is None else asked.checkpoint, allowDeselect=False, size="xs", w=230,
        **{"aria-label": "Inspected model"},
    )  # fmt: skip


def _without_panel(state: RegressionState) -> html.Section:
    how = dmc.Select(
        id=ids.HOW, data=[{"value": name, "label": label} for name, label in STAND_INS.items()], value=state.how,
        allowDeselect=False, size="xs", w=220, **{"aria-label": "Replace head output with"},
    )  # fmt: skip
    return view_panel(
        ids.WITHOUT,
        WITHOUT,
        "graph-heads",
        follows=ids.SHOWN,
        controls=labelled("Replace head output with", how, size="xs"),
    )


def _grid_panel(state: RegressionState) -> html.Section:
    prompts = dmc.Select(
        id=ids.PROMPT, data=[{"value": str(n), "label": f"prompt {n}"} for n in range(N_SHOWN)],
        value=str(state.prompt), allowDeselect=False, size="xs", w=120, **{"aria-label": "Prompt"},
    )  # fmt: skip
    content = [
        html.Div(id=ids.CELLS, className="grid", role="group", **{"aria-label": "Heads", **QUIET}),
        html.Div(dcc.Store(id=shell.paper(ids.GRID)), className="paper-figure"),
    ]
    exports = ("png", "svg", "python")
    return panel(ids.GRID, "All heads", GRID_ABOUT, content, controls=prompts, exports=exports, follows=ids.SHOWN)


def _map_panel(state: RegressionState) -> html.Section:
    query = dmc.Select(
        id=ids.QUERY, data=[], value=None if state.query is None else str(state.query), clearable=True,
        placeholder="no row locked", size="xs", w=130, **{"aria-label": "Locked query"},
    )  # fmt: skip
    controls = [switch_of(ids.VIEW, "Quantity shown in the maps", state.view, QUANTITIES), query]
    content = [caption(ids.MAP), html.Div(id=ids.CANVAS, className="large", **QUIET)]
    return panel(ids.MAP, "One head", MAP_ABOUT, content, controls=controls, exports=FILES, follows=ids.SHOWN)
