"""Non-linearity: a feed-forward network compiled into attention."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dash import html

from aotlens.views import nonlinearity as views
from aotlens.views.nonlinearity import ACTIVATIONS, NonlinearityParameters, eta, network
from app.pages.nonlinearity import files
from app.shell import ids as shell
from app.shell.arrange import Columns, Form, Linked, Panel, Preset, Tabs
from app.shell.browser import Browser
from app.shell.panel import QUIET
from app.shell.props import props, stores
from app.shell.tables import pick, value_table
from app.shell.view_page import view_page

if TYPE_CHECKING:
    from aotlens.distill import CompiledFFN
    from aotlens.distill.compile.described import CompiledHeads

_LAYERS = (
    ("layer", "", "number"),
    ("units", "Hidden units", "number"),
    ("η", "1 for SiLU", "number"),
    ("unit error", "At most 0.2785·η for ReLU", "number"),
    ("heads", "Heads that are not all zeros", "number"),
    ("stated (Thm 4.1)", "max{W, D} + 1", "number"),
    ("in its proof", "(W + 1) + 2(D + 1); without the last layer's constant where there is no bias", "number"),
)
_HEADS = (
    ("head", "layer.head; click to look at it", "mono"),
    ("role", "A hidden unit of the FFN, or what else the construction needs", "tokens"),
    ("reads t", "x, x₁, x₂ are the input, h₀, h₁, … the layer before, 1 the constant that carries biases", "tokens"),
    ("kinks (x)", "Inputs at which a ReLU unit's t is 0, for networks of one input", "tokens"),
    ("writes", "Its result, t·σ(t/η), times these weights, is added to the stream", "tokens"),
    ("η", "1 for SiLU; – for heads that see their own token only", "number"),
)


def _layers(params: NonlinearityParameters, compiled: CompiledFFN) -> list[dict[str, Any]]:
    """List the numbers of the model, and its layers."""
    rows = [
        (
            str(row.layer), f"{row.units} {ACTIVATIONS[row.activation]}", f"{row.eta:.3g}",
            f"≤ {row.unit_error:.3g}" if row.unit_error else "0 (exact)", str(row.heads), str(row.paper_heads),
            str(row.proof_heads),
        )
        for row in compiled.to_frame().itertuples()
    ]  # fmt: skip
    numbers = compiled.facts()
    return [
        value_table([("", "", "tokens"), ("", "", "here"), ("", "", "tokens")], numbers),
        value_table(_LAYERS, rows),
    ]


def _heads(params: NonlinearityParameters, heads: CompiledHeads) -> list[dict[str, Any]]:
    """List one row per head; a click on its name shows the head."""
    rows = []
    for row in heads.to_frame().itertuples():
        name = f"{row.layer}.{row.head}"
        head = pick(name, f"Look at head {name}", {"head": [row.layer, row.head], "view": "one"})
        eta = "–" if math.isnan(row.eta) else f"{row.eta:.3g}"
        rows.append([head, row.job, row.reads, row.kink, row.writes, eta])
    return [value_table(_HEADS, rows, height="fill")]


def _editor(page: Any) -> html.Div:
    """The drawing of a function, which the page's script fills and hides for other networks."""
    box = html.Div(id="nonlinearity-editor", role="group", **{"aria-label": "Points", **QUIET})
    add = html.Button("Add a point", id="nonlinearity-add", type="button", className="plain-button", **QUIET)
    return html.Div([box, add], id="nonlinearity-drawing", className="hidden")


def _inputs(page: Any) -> html.Div:
    """The sliders of x, which the page's script fills."""
    return html.Div(id="nonlinearity-inputs", className="two")


PAGE = view_page(
    views.FAMILY,
    "Non-linearity",
    arranged=Columns(
        Form(),
        Tabs("view", label="Function and heads", sections={
            "error": (views.ERROR.title, Panel(
                views.ERROR, controls=("scale",), over=("eta",), reads=("x",), above=_editor,
                presets=[Preset("η of the proof", {"eta": None})], notes=(network, eta),
            )),
            "one": (views.HEAD.title, Linked(
                views.HEAD, reads=("eta", "x", "head"), above=_inputs,
                title=lambda params, result: f"Head {result.role.layer}.{result.role.head}",
            )),
            "mask": (views.MASK.title, Panel(views.MASK, size="low", captioned=False, reads=("eta",))),
        }),
        Tabs("beside", label="The model and its parts", sections={
            "model": (views.LAYERS.title, Linked(views.LAYERS, lines=_layers, reads=("eta",), saves={
                "safetensors": files.model_safetensors, "zip": files.model_zip, "ffn": files.ffn_safetensors,
            })),
            "heads": (views.HEADS.title, Linked(views.HEADS, lines=_heads, reads=("eta",))),
            "gate": (views.GATE.title, Linked(views.GATE, size="fill", reads=("eta", "x", "head"))),
        }),
        widths="245px minmax(0, 1fr) minmax(0, 1fr)",
    ),
    file=__file__,
    browser=[
        Browser("show", inputs=stores(shown="nonlinearity-shown")),
        Browser("pick", inputs=props("clickData", point=shell.graph("nonlinearity-error")), at_first=False),
    ],
)  # fmt: skip
