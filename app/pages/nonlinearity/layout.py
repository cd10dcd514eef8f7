"""The Non-linearity page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from aotlens.views.nonlinearity_choice import ACTIVATIONS, CONSTRUCTIONS, PARAMETERS, PRESETS, SCALES, Chosen
from app.core import Core
from app.pages.nonlinearity.address import NonlinearityState
from app.pages.nonlinearity.ids import VIEWS, ids
from app.pages.nonlinearity.service import LEAST_ETA, MOST_ETA, Nonlinearity, slider_of
from app.shell import ids as shell
from app.shell.controls import head_choice, labelled, segments, switch_of, whole_number
from app.shell.drawn import drawn
from app.shell.panel import about, panel, tabs
from app.shell.tables import grid, number, value_tables
from app.shell.views import FILES, about_view, view_panel

_EXPLAIN = about(
    "Attention alone can compute a feed-forward network. Choose a small FFN or draw one: it is compiled into an "
    "attention-only transformer, with a proven bound on how far the two can differ for any input in [−M, M]. The "
    "address in your browser holds everything you choose here.",
    formula="|model(x) − FFN(x)| ≤ ε for every x in [−M, M]^D",
    source="Non-linearity in attention, Theorem 4.1",
)
_AUXILIARY = {"unit": "(0, …, 0, 1), the theorem's", "random": "random (Corollary 4.1)", "own": "your own numbers"}
_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_TEXT: dict[str, Any] = {"flex": 3, "minWidth": 130, "cellClass": "formula"}
HEAD_COLUMNS = [
    {"field": "head", "headerName": "head", "width": 54, "cellClass": "mono pick",
     "headerTooltip": "layer.head; click or press Enter to look at it"},
    {"field": "job", "headerName": "role", "flex": 1, "minWidth": 100, "tooltipField": "job",
     "headerTooltip": "A hidden unit of the FFN, or what else the construction needs"},
    {"field": "reads", "headerName": "reads t", "tooltipField": "reads", **_TEXT,
     "headerTooltip": "x, x₁, x₂ are the input, h₀, h₁, … the layer before, 1 the constant that carries biases"},
    {"field": "kink", "headerName": "kinks (x)", "flex": 1, "minWidth": 74, "tooltipField": "kink",
     "headerTooltip": "Inputs at which a ReLU unit's t is 0, for networks of one input"},
    {"field": "writes", "headerName": "writes", "tooltipField": "writes", **_TEXT,
     "headerTooltip": "Its result, t·σ(t/η), times these weights, is added to the stream"},
    number("eta", "η", ".3", "1 for SiLU; – for heads that see their own token only", width=80),
]  # fmt: skip


def layout(core: Core, service: Nonlinearity, state: NonlinearityState) -> html.Div:
    """Return the page for an address; with nothing in it, the hat."""
    return html.Div(
        [
            html.H1("Non-linearity", className="sr-only"),
            *(dcc.Store(id=id) for id in (ids.CHOSEN, ids.SHOWN, ids.DRAWN)),
            dcc.Store(id=ids.ETA, data=state.eta),
            dcc.Store(id=ids.HEAD, data=None if state.head is None else list(state.head)),
            _network_panel(state),
            html.Div(
                [
                    tabs(ids.VIEWS, state.view, _views(state), label="Function and heads"),
                    tabs(ids.BESIDES, state.beside, _besides(), label="The model and its parts"),
                ],
                id=ids.BODY,
                className="nonlinearity-body",
                **{"data-empty": ""},
            ),
        ],
        id=ids.PAGE,
        className="nonlinearity-page",
        **{"data-preset": state.preset, "data-inputs": str(state.inputs), "data-activation": state.activation,
           "data-auxiliary": _auxiliary_kind(state)},
    )  # fmt: skip


def _views(state: NonlinearityState) -> dict[str, tuple[str, Any]]:
    scale = switch_of(ids.SCALE, PARAMETERS["scale"].label, state.scale, SCALES)
    return {
        "error": _tab(ids.ERROR, "graph-compiled", controls=scale, before=[_eta_controls(state)]),
        "one": _tab(ids.ONE, "graph-one-head", before=[_head_controls(state)]),
        "mask": _tab(ids.MASK, "graph-mask", captioned=False),
    }


def _besides() -> dict[str, tuple[str, Any]]:
    model = [drawn(ids.FACTS, "", "Facts"), value_tables(ids.LAYERS, "Layers", "layers-box")]
    heads = grid(shell.table(ids.HEADS), HEAD_COLUMNS, key="head", height=440, header=46)
    return {
        "model": _listed(ids.COMPILED, model, "safetensors", "zip", "ffn"),
        "heads": _listed(ids.HEADS, heads),
        "gate": _tab(ids.GATE, "graph-gate"),
    }


def _tab(id: str, size: str, **rest: Any) -> tuple[str, Any]:
    """A view's title and its panel, with its figure."""
    section = view_panel(id, VIEWS[id], size, exports=(*FILES, "json"), follows=ids.CHOSEN, **rest)
    return VIEWS[id].title, section


def _listed(id: str, content: Any, *files: str) -> tuple[str, Any]:
    """A view's title and its panel, without a figure."""
    view, exports = VIEWS[id], ("csv", "json", *files, "python")
    return view.title, panel(id, view.title, about_view(view), content, exports=exports, follows=ids.CHOSEN)


def _network_panel(state: NonlinearityState) -> html.Section:
    kind = _auxiliary_kind(state)
    controls = [
        _select(ids.PRESET, "preset", state.preset, PRESETS, 210),
        segments(ids.INPUTS, PARAMETERS["inputs"].label, str(state.inputs), {"1": "1", "2": "2"}),
        segments(ids.ACTIVATION, PARAMETERS["activation"].label, state.activation, ACTIVATIONS),
        *(_whole(name, getattr(state, name)) for name in ("width", "depth", "seed")),
        _text(ids.BOUND, PARAMETERS["bound"].label, f"{state.bound:.12g}", w=110),
        _text(ids.TOLERANCE, PARAMETERS["tolerance"].label, f"{state.tolerance:.12g}", w=110),
        segments(ids.CONSTRUCTION, PARAMETERS["construction"].label, state.construction, CONSTRUCTIONS),
        _select(ids.AUXILIARY, "auxiliary", kind, _AUXILIARY, 250),
        _text(
            ids.VECTOR, "Its d_model numbers, commas between", state.auxiliary if kind == "own" else "", w=260,
            placeholder="0.5, −1, 2", className="for-vector",
        ),
    ]  # fmt: skip
    lines = [html.Div(id=ids.MEANING), html.P(id=ids.EXACTNESS, className="exact")]
    content = [
        html.Div(controls, className="choices"),
        _drawing(state),
        html.Div(lines, className="meaning", role="status"),
    ]
    return panel(ids.PANEL, "A network to compile", _EXPLAIN, content, follows=ids.CHOSEN, always=True)


def _select(id: str, name: str, value: str, options: dict[str, str], width: int) -> dmc.Select:
    label = PARAMETERS[name].label.partition(":")[0]
    data = [{"value": each, "label": text} for each, text in options.items()]
    return dmc.Select(id=id, label=label, value=value, data=data, allowDeselect=False, w=width, size="sm")


def _whole(name: str, value: int) -> dmc.NumberInput:
    each = PARAMETERS[name]
    id = getattr(ids, name.upper())
    return whole_number(id, each.label, value, each.least, each.most, className=f"for-{name}", w=110)


def _text(id: str, label: str, value: str, **rest: Any) -> dmc.TextInput:
    return dmc.TextInput(id=id, label=label, value=value, debounce=400, size="sm", **rest)


def _drawing(state: NonlinearityState) -> html.Div:
    return html.Div(
        [
            html.Div(id=ids.EDITOR, className="editor", role="group", **{"aria-label": "Points"}),
            html.Div(
                [
                    dmc.Textarea(
                        id=ids.KNOTS, label="Points: x, y on a line each", autosize=True, minRows=4,
                        value=state.knots.replace(",", ", ").replace(";", "\n"), maxRows=9, debounce=400, size="sm",
                        spellCheck=False, className="points",
                    ),
                    dmc.Button("Add a point", id=ids.ADD, n_clicks=0, size="compact-sm", variant="default"),
                    html.P(
                        "Click to add a point, drag to move it; or Tab to a point, arrow keys move it (with Shift: "
                        "more), Delete removes it.",
                        className="caption",
                    ),
                ],
                className="points-box",
            ),
        ],
        id=ids.DRAWING,
        className="drawing for-knots",
    )  # fmt: skip


def _eta_controls(state: NonlinearityState) -> html.Div:
    marks = [{"value": power, "label": "10" + str(power).translate(_SUPERSCRIPTS)} for power in range(-8, 2, 2)]
    slider = dmc.Slider(
        id=ids.ETA_SLIDER, value=slider_of(state.eta or 0.01), min=LEAST_ETA, max=MOST_ETA, step=0.05, marks=marks,
        updatemode="drag", label={"function": "tenToThe"}, thumbLabel="η, as a power of ten", size="sm",
    )  # fmt: skip
    return html.Div(
        [
            html.Div(labelled("η (sharpness of the gates)", slider), className="eta-box"),
            dmc.Button("As the proof chooses", id=ids.ETA_PROOF, n_clicks=0, size="compact-sm", variant="default"),
            html.P(id=ids.ETA_CAPTION, className="caption", role="status"),
        ],
        className="eta",
    )


def _head_controls(state: NonlinearityState) -> html.Div:
    x, reach = Chosen(bound=state.bound, inputs=state.inputs, x=state.x).point, abs(state.bound) or 1.0
    sliders = [
        html.Div(
            [
                html.Span(label, className="field-label"),
                dmc.Slider(
                    id=id, value=x[min(place, len(x) - 1)], min=-reach, max=reach, step=reach / 200, precision=6,
                    updatemode="drag", label={"function": "plain"}, thumbLabel=label, size="sm",
                ),
            ],
            className=name,
        )
        for place, (id, label, name) in enumerate(
            ((ids.X1, "Input x (x₁)", "x-box"), (ids.X2, "Input x₂", "x-box for-second"))
        )
    ]  # fmt: skip
    return html.Div([head_choice(ids.PICKER, ids.HEAD), *sliders], className="choices")


def _auxiliary_kind(state: NonlinearityState) -> str:
    return state.auxiliary if state.auxiliary in ("unit", "random") else "own"
