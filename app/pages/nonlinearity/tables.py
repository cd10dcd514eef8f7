"""The Non-linearity page's facts, tables and head picker."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from dash import html

from app.shell.tables import number

if TYPE_CHECKING:
    from app.pages.nonlinearity.figures import Fact

#: Mantine's own look for a head's button is in the shell; a head without a gate has a class of its own.
_LINEAR = "pick-head pick-linear"


def fact_tiles(facts: Sequence[Fact]) -> list[html.Div]:
    """A number each, with where it comes from."""
    return [
        html.Div(
            [
                html.Dt(fact.name, className="fact-name"),
                html.Dd([html.Span(fact.value, className="fact-value"), html.Span(fact.why, className="fact-why")]),
            ],
            className="fact",
        )
        for fact in facts
    ]


def layers_table(rows: Sequence[dict[str, Any]]) -> html.Table:
    """A row a layer; the last three columns are heads: built here, stated by the theorem, needed by its proof."""
    titles = ("layer", "units", "η", "a unit is off by", "heads here", "Thm 4.1 states", "its proof needs")
    head = html.Tr([html.Th(title, scope="col", className="number") for title in titles])
    body = [
        html.Tr(
            [
                html.Td(str(row["layer"]), className="number"),
                html.Td(f"{row['units']} {_NAMES[row['activation']]}", className="number"),
                html.Td(f"{row['eta']:.3g}", className="number"),
                html.Td(f"≤ {row['unit_error']:.3g}" if row["unit_error"] else "0: exact", className="number"),
                html.Td(str(row["heads"]), className="number strong"),
                html.Td(str(row["paper_heads"]), className="number"),
                html.Td(str(row["proof_heads"]), className="number"),
            ]
        )
        for row in rows
    ]
    return html.Table([html.Thead(head), html.Tbody(body)], className="effect")


def role_buttons(heads: Sequence[tuple[int, int, bool]]) -> list[html.Div]:
    """A button a head that does something, a row a layer: (layer, head, whether it has a gate)."""
    return [
        html.Div([_button(*one) for one in row], className="pick-layer")
        for _, row in groupby(heads, key=lambda one: one[0])
    ]


def _button(layer: int, head: int, gated: bool) -> html.Button:
    what = "a gate" if gated else "linear: sees itself only"
    return html.Button(
        f"{layer}.{head}",
        className="pick-head" if gated else _LINEAR,
        tabIndex=-1,
        title=f"Layer {layer}, head {head}: {what}",
        **{"data-layer": str(layer), "data-head": str(head), "aria-label": f"Head {layer}.{head}"},
    )


_NAMES = {"relu": "ReLU", "silu": "SiLU"}
_TEXT: dict[str, Any] = {"flex": 3, "minWidth": 130, "cellClass": "formula"}
HEAD_COLUMNS = [
    {"field": "head", "headerName": "head", "width": 54, "cellClass": "mono pick",
     "headerTooltip": "layer.head; click or press Enter to look at it below"},
    {"field": "job", "headerName": "what it is", "flex": 1, "minWidth": 100, "tooltipField": "job",
     "headerTooltip": "A hidden unit of the FFN, or what the construction needs besides"},
    {"field": "reads", "headerName": "t: what it reads", "tooltipField": "reads", **_TEXT,
     "headerTooltip": "x, x₁, x₂ are the input, h₀, h₁, … the layer before, 1 the constant that carries biases"},
    {"field": "kink", "headerName": "kinks (x)", "flex": 1, "minWidth": 74, "tooltipField": "kink",
     "headerTooltip": "Inputs at which a ReLU unit's t is 0, for networks of one number"},
    {"field": "writes", "headerName": "what it writes", "tooltipField": "writes", **_TEXT,
     "headerTooltip": "Its result, t·σ(t/η), times these weights, is added to the stream"},
    number("eta", "η", ".3", "1 for SiLU; – for heads that see their own token only", width=80),
]  # fmt: skip
