"""The In-context regression page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from app.core import Core
from app.core.errors import RequestError
from app.core.head_maps import QUANTITIES
from app.pages.regression import explanations, words
from app.pages.regression.address import N_SHOWN, PARAMETERS, STAND_INS, RegressionState
from app.pages.regression.ids import ids
from app.pages.regression.service import NO_MODEL, Asked, Regressions
from app.shell import ids as shell
from app.shell.controls import labelled, link_button, parameter_slider, slider, switch_of
from app.shell.drawn import drawn
from app.shell.graph import caption, figure
from app.shell.head_map import head_map
from app.shell.notices import empty
from app.shell.panel import panel, tabs

_FILES = ("png", "svg", "csv", "python")


def layout(core: Core, service: Regressions, state: RegressionState) -> html.Div:
    """The page for an address; with nothing in it, all models of the narrowest inputs."""
    try:
        asked = service.asked_of(state)
    except RequestError:
        asked = None  # there are no models, which the panel says
    stores = {ids.SHOWN: None, ids.HEAD: list(state.head or (0, 0)), ids.LOOKED: None}
    sections = {
        "layers": ("Layers", _layers_panel()),
        "heads": ("Heads on a prompt", html.Div([_grid_panel(state), _map_panel(state)], className="regression-maps")),
        "without": ("Without a head", _without_panel(state)),
        "motifs": ("Motifs", _figure_panel(ids.MOTIFS, "Where heads look in prompts", explanations.MOTIFS)),
        "support": ("Support", _figure_panel(ids.SUPPORT, "Coordinates that count", explanations.SUPPORT)),
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


def _parameters(service: Regressions, asked: Asked | None) -> html.Section:
    by_width = service.by_width()
    d, widths = (1, []) if asked is None else (asked.d, [str(width) for width in by_width])
    models = [] if asked is None else list(by_width[asked.d])
    small: dict[str, Any] = {"size": "xs"}
    values = {} if asked is None else {name: getattr(asked, name) for name in PARAMETERS}
    whole = {"disabled": d < 2}
    controls = [
        dmc.Select(
            id=ids.D, label="Models that read", data=[{"value": one, "label": f"{one} numbers"} for one in widths],
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


def _errors_panel(core: Core, state: RegressionState, asked: Asked | None) -> html.Section:
    axis = switch_of(ids.AXIS, "Axis of errors", state.axis, {"linear": "linear", "log": "logarithmic"})
    content = [
        html.Div(id=shell.body(ids.ERRORS), className="meaning", role="status"),
        *([empty(NO_MODEL)] if asked is None else []),
        figure(ids.ERRORS, "graph-regression"),
        html.Div(
            [
                labelled("Looked into below", _checkpoint(asked), size="xs"),
                link_button(ids.OPEN_CARD, "Its card", core.links.to("checkpoints")),
                caption(ids.ERRORS),
            ],
            className="regression-looked",
        ),
    ]
    return panel(
        ids.ERRORS, "Error by the number of examples", explanations.ERRORS, content, controls=axis, exports=_FILES
    )


def _checkpoint(asked: Asked | None) -> dmc.Select:
    return dmc.Select(
        id=ids.CHECKPOINT, data=[] if asked is None else list(asked.models),
        value=None if asked is None else asked.checkpoint, allowDeselect=False, size="xs", w=230,
        **{"aria-label": "Looked into below"},
    )  # fmt: skip


def _layers_panel() -> html.Section:
    content = [caption(ids.LAYERS), figure(ids.LAYERS, "graph-regression")]
    return panel(
        ids.LAYERS, "The answer after each layer", explanations.LAYERS, content, exports=_FILES, follows=ids.SHOWN
    )


def _figure_panel(id: str, title: str, explanation: Any) -> html.Section:
    content = [caption(id), figure(id, "graph-heads")]
    return panel(id, title, explanation, content, exports=_FILES, follows=ids.SHOWN)


def _without_panel(state: RegressionState) -> html.Section:
    how = dmc.Select(
        id=ids.HOW, data=[{"value": name, "label": words.STAND_INS[name]} for name in STAND_INS], value=state.how,
        allowDeselect=False, size="xs", w=220, **{"aria-label": "What stands in a head's place"},
    )  # fmt: skip
    content = [caption(ids.WITHOUT), figure(ids.WITHOUT, "graph-heads")]
    return panel(
        ids.WITHOUT, "Without each head", explanations.WITHOUT, content,
        controls=labelled("In its place", how, size="xs"), exports=_FILES, follows=ids.SHOWN,
    )  # fmt: skip


def _grid_panel(state: RegressionState) -> html.Section:
    prompts = dmc.Select(
        id=ids.PROMPT, data=[{"value": str(n), "label": f"prompt {n}"} for n in range(N_SHOWN)],
        value=str(state.prompt), allowDeselect=False, size="xs", w=120, **{"aria-label": "Prompt"},
    )  # fmt: skip
    picture = html.Img(id=ids.GRID_PICTURE, src="", alt="", className="regression-picture", draggable="false")
    cells = drawn(ids.CELLS, "pick-heads regression-cells", "Heads", **{"data-store": ids.HEAD})
    content = [
        html.Div([picture, cells], className="regression-grid"),
        html.Div(dcc.Store(id=shell.paper(ids.GRID)), className="paper-figure"),
    ]
    exports = ("png", "svg", "python")
    return panel(
        ids.GRID, "All heads", explanations.GRID, content, controls=prompts, exports=exports, follows=ids.SHOWN
    )


def _map_panel(state: RegressionState) -> html.Section:
    query = dmc.Select(
        id=ids.QUERY, data=[], value=None if state.query is None else str(state.query), clearable=True,
        placeholder="no row locked", size="xs", w=130, **{"aria-label": "Locked query"},
    )  # fmt: skip
    controls = [switch_of(ids.VIEW, "What the maps show", state.view, QUANTITIES), query]
    content = [caption(ids.MAP), *head_map(ids.MAP, "graph-prompt")]
    return panel(ids.MAP, "One head", explanations.MAP, content, controls=controls, exports=_FILES, follows=ids.SHOWN)
