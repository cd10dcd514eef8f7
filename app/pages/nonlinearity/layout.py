"""The Non-linearity page's layout."""

from __future__ import annotations

from typing import Any, get_args

import dash_mantine_components as dmc
from dash import dcc, html

from app.core import Core
from app.pages.nonlinearity.address import MAX_DEPTH, MAX_WIDTH, NonlinearityState, Preset
from app.pages.nonlinearity.captions import NAMES
from app.pages.nonlinearity.ids import ids
from app.pages.nonlinearity.service import LEAST_ETA, MOST_ETA, Nonlinearity, slider_of, starting_x
from app.pages.nonlinearity.tables import HEAD_COLUMNS
from app.shell import ids as shell
from app.shell.controls import head_choice, labelled, segments, switch_of, whole_number
from app.shell.graph import caption, figure
from app.shell.panel import about, panel, tabs
from app.shell.tables import grid

_PAPER = "Non-linearity in attention"

_EXPLAIN = about(
    "Attention alone can compute a feed-forward network. Choose a small FFN or draw one: it is compiled into an "
    "attention-only transformer, with a proven bound on how far the two can differ for any input in [−M, M]. The "
    "address in your browser holds everything you choose here.",
    formula="|model(x) − FFN(x)| ≤ ε for every x in [−M, M]^D",
    source=f"{_PAPER}, Theorem 4.1",
)
_EXPLAIN_COMPILED = about(
    "One attention layer computes one hidden layer, one head of size 1 each hidden unit. W are its units, D the "
    "numbers it reads: biases ride on a constant (Lemma E.1), and the skip connection is cancelled by two heads a "
    "number (Lemma E.3). Leaner, and exact: one head that sees its own token only cancels it all.",
    formula="stated: max{W, D} + 1 heads a layer; its proof needs (W + 1) + 2(D + 1)",
    source=f"{_PAPER}, Theorem 4.1",
)
_EXPLAIN_ERROR = about(
    "Where the model differs from the FFN. Each ReLU unit is off most at |t| = 1.2785·η, by 0.2785·η, and by nothing "
    "elsewhere; later weights multiply that. Slide η: smaller is closer to ReLU, and a sharper softmax. Click the "
    "picture to choose an x.",
    formula="ReLU(t) − η·SiLU(t/η) = |t|·σ(−|t|/η)",
    source=f"{_PAPER}, Lemma E.2, which writes σ_L(ηx)/x; what holds is η·SiLU(x/η) → ReLU(x) as η → 0",
)
_EXPLAIN_HEADS = (
    "What each head reads and writes, from its weights. Click one to look at it closely. Heads that only fill up the "
    "model's shape with zeros are left out."
)
_EXPLAIN_ONE = about(
    "Its attention pattern on a sequence of the auxiliary token and four tokens, the first of them your x: tokens do "
    "not see each other. A token scores itself 0 and the auxiliary token −t/η, and the auxiliary token's value is 0: "
    "so the softmax over two keys is a sigmoid, a gate on the token's own value.",
    formula="softmax(0, −t/η)₁ = σ(t/η)",
    source=f"{_PAPER}, Lemma E.4",
)
_EXPLAIN_GATE = (
    "Above, the head's result against what it reads, t, beside ReLU; circles are the model's own at inputs over the "
    "whole range. Below, the softmax weight that the token gives itself. The upright is your x; at the right, the "
    "same close to 0."
)
_EXPLAIN_MASK = (
    "Which keys each query may attend to. A token sees itself and the auxiliary token (position 0), never another "
    "token; the auxiliary token sees itself, so that no softmax is over nothing."
)
_PICTURES = ("png", "svg", "python")
_SCALES = {"linear": "linear", "log": "log"}
_AUXILIARY = {"unit": "(0, …, 0, 1), the theorem's", "random": "random (Corollary 4.1)", "own": "your own numbers"}


def layout(core: Core, service: Nonlinearity, state: NonlinearityState) -> html.Div:
    """The page for an address; with nothing in it, the hat."""
    return html.Div(
        [
            html.H1("Non-linearity", className="sr-only"),
            dcc.Store(id=ids.SHOWN),
            dcc.Store(id=ids.ETA, data=state.eta),
            dcc.Store(id=ids.HEAD, data=None if state.head is None else list(state.head)),
            dcc.Store(id=ids.LOOK),
            _network_panel(state),
            html.Div(
                [
                    tabs(ids.VIEWS, state.view, _views(state), label="What it computes"),
                    tabs(ids.BESIDES, state.beside, _besides(), label="What it is made of"),
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
    error = [_eta_controls(state), caption(ids.ERROR), figure(ids.ERROR, "graph-compiled")]
    scale = switch_of(ids.SCALE, "Scale of the error", state.scale, _SCALES)
    says = html.Div(id=shell.body(ids.ONE), className="head-says", role="status")
    one = [_head_controls(state), says, figure(ids.ONE, "graph-one-head")]
    mask = figure(ids.MASK, "graph-mask")
    return {
        "error": (
            "Error over the inputs",
            panel(
                ids.ERROR, "Error over the inputs", _EXPLAIN_ERROR, error, controls=scale, exports=("csv", *_PICTURES),
                follows=ids.SHOWN,
            ),
        ),
        "one": ("One head", panel(ids.ONE, "One head", _EXPLAIN_ONE, one, exports=("csv", *_PICTURES))),
        "mask": (
            "Attention mask",
            panel(ids.MASK, "Attention mask", _EXPLAIN_MASK, mask, exports=_PICTURES, follows=ids.SHOWN),
        ),
    }  # fmt: skip


def _besides() -> dict[str, tuple[str, Any]]:
    model = [
        html.Dl(id=ids.FACTS, className="facts"),
        html.Div(id=shell.body(ids.COMPILED), className="layers-box", tabIndex=0),
    ]
    heads = grid(shell.table(ids.HEADS), HEAD_COLUMNS, key="id", height=440, header=46)
    gate = [caption(ids.GATE), figure(ids.GATE, "graph-gate")]
    return {
        "model": (
            "The attention model",
            panel(
                ids.COMPILED, "The attention model", _EXPLAIN_COMPILED, model,
                exports=("csv", "safetensors", "zip", "ffn", "python"), follows=ids.SHOWN,
            ),
        ),
        "heads": (
            "Heads",
            panel(ids.HEADS, "Heads", _EXPLAIN_HEADS, heads, exports=("csv", "python"), follows=ids.SHOWN),
        ),
        "gate": ("The gate", panel(ids.GATE, "The gate", _EXPLAIN_GATE, gate, exports=_PICTURES)),
    }  # fmt: skip


def _network_panel(state: NonlinearityState) -> html.Section:
    kind = _auxiliary_kind(state)
    network = [
        dmc.Select(
            id=ids.PRESET, label="Network", value=state.preset, allowDeselect=False, w=210, size="sm",
            data=[{"value": name, "label": NAMES[name]} for name in get_args(Preset)],
        ),
        segments(ids.INPUTS, "Reads", str(state.inputs), {"1": "one number", "2": "two"}),
        segments(ids.ACTIVATION, "Activation", state.activation, {"relu": "ReLU", "silu": "SiLU"}),
        whole_number(ids.WIDTH, "Units a layer", state.width, 1, MAX_WIDTH, className="for-width", w=110),
        whole_number(ids.DEPTH, "Hidden layers", state.depth, 1, MAX_DEPTH, className="for-depth", w=110),
        whole_number(ids.SEED, "Seed", state.seed, 0, 999_999, className="for-seed", w=110),
    ]  # fmt: skip
    compiled = [
        _text(ids.BOUND, "Inputs up to M", f"{state.bound:.12g}", 110),
        _text(ids.TOLERANCE, "Tolerance", f"{state.tolerance:.12g}", 110),
        segments(
            ids.CONSTRUCTION, "Construction", state.construction,
            {"lean": "leaner", "narrow": "heads of size 1", "paper": "the paper's"},
        ),
        dmc.Select(
            id=ids.AUXILIARY, label="Auxiliary token", value=kind, allowDeselect=False, w=250, size="sm",
            data=[{"value": value, "label": label} for value, label in _AUXILIARY.items()],
        ),
        dmc.TextInput(
            id=ids.VECTOR, label="Its d_model numbers, commas between", debounce=400, size="sm",
            value=state.auxiliary if kind == "own" else "", placeholder="0.5, −1, 2", className="for-vector", w=260,
        ),
    ]  # fmt: skip
    return panel(
        ids.PANEL, "A network to compile", _EXPLAIN,
        [
            html.Div([*network, *compiled], className="choices"),
            _drawing(state),
            html.Div(id=ids.MEANING, className="meaning", role="status"),
        ],
    )  # fmt: skip


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
                    dmc.Button(
                        "Add a point", id=ids.ADD, n_clicks=0, size="compact-sm", variant="default"
                    ),
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
    x = starting_x(state)
    sliders = [
        html.Div(
            [
                html.Span(label, className="field-label"),
                dmc.Slider(
                    id=id, value=x[min(place, len(x) - 1)], min=-state.bound if state.bound > 0 else -1, precision=6,
                    max=state.bound if state.bound > 0 else 1, step=abs(state.bound) / 200 or 0.01, updatemode="drag",
                    label={"function": "plain"}, thumbLabel=label, size="sm",
                ),
            ],
            className=name,
        )
        for place, (id, label, name) in enumerate(
            ((ids.X1, "Input x (x₁)", "x-box"), (ids.X2, "Input x₂", "x-box for-second"))
        )
    ]  # fmt: skip
    return html.Div(
        [
            head_choice(ids.PICKER, ids.HEAD),
            *sliders,
        ],
        className="choices",
    )


def _auxiliary_kind(state: NonlinearityState) -> str:
    return state.auxiliary if state.auxiliary in ("unit", "random") else "own"


def _text(id: str, label: str, value: str, width: int) -> dmc.TextInput:
    return dmc.TextInput(id=id, label=label, value=value, debounce=400, w=width, size="sm")


_SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
