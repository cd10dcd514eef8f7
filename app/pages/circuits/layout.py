"""The Circuits page's layout."""

from __future__ import annotations

from typing import Any

import dash_ag_grid as dag
import dash_mantine_components as dmc
from dash import dcc, html

from app.core import Core
from app.pages.circuits.address import MAX_CHOSEN, CircuitsState
from app.pages.circuits.ids import ids
from app.pages.circuits.service import Circuits
from app.shell import ids as shell
from app.shell.choices import one_of, some_of
from app.shell.controls import head_choice, link_button, segments, switch_of, whole_number
from app.shell.graph import caption, figure
from app.shell.panel import about, panel, tabs
from app.shell.prompt import checkpoint_choice
from app.shell.tables import grid

_FRAMEWORK = "A Mathematical Framework for Transformer Circuits (Elhage et al. 2021)"

_EXPLAIN_CIRCUIT = about(
    "Read from the weights alone: no text is run. QK says which tokens a head attends to from which, OV what it does "
    "to the output when it attends. The address in your browser holds everything you choose here.",
    formula="QK = W_E W_Q W_Kᵀ W_Eᵀ / √d_head, in nats;  OV = W_E W_V W_O W_U, in logits",
    source=f"{_FRAMEWORK}; MSSA, where W_Q = W_K = W_V: Attention-Only Transformers, Eq. 4",
)
_EXPLAIN_MAP = (
    "Exact entries for some rows and columns; without a choice, those of the entries largest in size. Blue is "
    "positive, orange negative. Point at one for its value; click it to list its row and column."
)
_EXPLAIN_TOP = (
    "The largest and the smallest of all entries, exact over the whole matrix. Click a token to list everything about "
    "it."
)
_EXPLAIN_OVERVIEW = (
    "All entries, in blocks, in order of id (of tokens: single bytes, then pieces of text, frequent ones first). Click "
    "a block to see its entries."
)
_EXPLAIN_BLOCK = "The block that is framed in the whole matrix, in full or, if it is large, where it is largest."
_EXPLAIN_SINGULAR = about(
    "A circuit is a sum of few products, strongest first: a pattern over rows times a pattern over columns. A row "
    "and a column listed side by side raise each other's entry; the + rows with the − columns lower it. Which side is "
    "called + is arbitrary.",
    formula="W = Σᵢ σᵢ uᵢ vᵢᵀ",
)
_EXPLAIN_EIGENVALUES = about(
    "Where rows and columns are the same, an eigenvector goes in and comes out multiplied by its eigenvalue. Mostly "
    "positive real parts mean copying (OV) or like attending to like (QK).",
    formula="W v = λ v",
    source=_FRAMEWORK,
)
_EXPLAIN_COMPOSITION = about(
    "Which earlier heads this head reads, and which later ones read it: between 0 and 1. Two unrelated heads are not "
    "at 0 either, so a line is drawn only where a pair lies above its null: the same two heads, one of them turned at "
    "random against the other. A stream that all heads share lifts many pairs above it; the place among all heads that "
    "the later one can read tells them apart. Far below the null is not absence of composition, and neither the score "
    "nor z sees size: look at the norm. Click a head to go there, or what it is read by (queries, keys, values) for "
    "the later head's QK or OV circuit through the earlier one.",
    formula="‖W_first W_second‖ / (‖W_first‖ ‖W_second‖), Frobenius norms",
    source=_FRAMEWORK,
)
_EXPLAIN_COPYING = about(
    "How often attending to a token promotes that same token above all others, over the whole vocabulary; and the "
    "copying score of the eigenvalues, 1 for pure copying, −1 for pure suppression.",
    formula="Σ λ / Σ |λ| over the eigenvalues λ of the full OV circuit",
    source=_FRAMEWORK,
)

_TABLES = ("csv", "python")
_FIGURES = ("png", "svg", "csv", "json", "python")
_STATISTICS = {"extreme": "largest in size", "mean": "mean"}


def layout(core: Core, service: Circuits, state: CircuitsState) -> html.Div:
    """The page for an address; with nothing in it, the first head of the first checkpoint."""
    checkpoint = state.checkpoint or core.catalog.default()
    asked = {
        "left": state.left,
        "right": state.right,
        "rows": list(state.rows),
        "columns": list(state.columns),
        "row": state.row,
        "column": state.column,
        "text": state.text,
    }
    return html.Div(
        [
            html.H1("Circuits", className="sr-only"),
            dcc.Store(id=ids.ASKED, data=asked),
            dcc.Store(id=ids.SHOWN),
            dcc.Store(id=ids.THROUGH),
            dcc.Store(id=ids.HEAD, data=state.head),
            dcc.Store(id=ids.BLOCK_AT, data=state.block),
            _choice_panel(core, state, checkpoint),
            html.Div(
                [
                    tabs(ids.VIEWS, state.view, _views(state), label="Of the circuit and the head"),
                    tabs(ids.BESIDES, state.beside, _besides(), label="Entries of the circuit"),
                ],
                id=ids.BODY,
                className="circuits-body",
                **{"data-problem": "loading"},
            ),
        ],
        className="circuits",
    )  # fmt: skip


def _views(state: CircuitsState) -> dict[str, tuple[str, Any]]:
    whole = [caption(ids.OVERVIEW), figure(ids.OVERVIEW, "graph-circuit")]
    statistic = switch_of(ids.OVERVIEW_STATISTIC, "What stands for a block", state.statistic, _STATISTICS)
    eigenvalues = [caption(ids.EIGENVALUES), figure(ids.EIGENVALUES, "graph-circuit")]
    composition = [
        caption(ids.COMPOSITION),
        figure(ids.COMPOSITION, "graph-composition"),
        _grid(shell.table(ids.COMPOSITION), 220),
    ]
    return {
        "map": ("Map", _panel(ids.MAP, "Map", _EXPLAIN_MAP, _map(), exports=_FIGURES)),
        "whole": (
            "Whole matrix",
            _panel(ids.OVERVIEW, "Whole matrix", _EXPLAIN_OVERVIEW, whole, controls=statistic, exports=_FIGURES),
        ),
        "eigenvalues": (
            "Eigenvalues",
            _panel(ids.EIGENVALUES, "Eigenvalues", _EXPLAIN_EIGENVALUES, eigenvalues, exports=_FIGURES),
        ),
        "composition": (
            "Composition",
            _panel(
                ids.COMPOSITION, "Composition", _EXPLAIN_COMPOSITION, composition, controls=_threshold(state),
                exports=_FIGURES,
            ),
        ),
    }  # fmt: skip


def _besides() -> dict[str, tuple[str, Any]]:
    lines = [
        _line_panel(ids.ROW, ids.ROW_CHOICE, ids.ROW_LARGEST, ids.ROW_SMALLEST, "One row"),
        _line_panel(ids.COLUMN, ids.COLUMN_CHOICE, ids.COLUMN_LARGEST, ids.COLUMN_SMALLEST, "One column"),
    ]
    block = [caption(ids.BLOCK), figure(ids.BLOCK, "graph-block"), _grid(shell.table(ids.BLOCK), 190)]
    singular = [caption(ids.SINGULAR), html.Div(id=shell.body(ids.SINGULAR), className="singular-box", tabIndex=0)]
    copying = [caption(ids.COPYING), _grid(shell.table(ids.COPYING), 380)]
    top = _pair(ids.TOP_LARGEST, ids.TOP_SMALLEST)
    return {
        "top": ("Top entries", _panel(ids.TOP, "Top entries", _EXPLAIN_TOP, top, exports=_TABLES)),
        "lines": ("Row and column", html.Div(lines, className="lines")),
        "block": ("One block", _panel(ids.BLOCK, "One block", _EXPLAIN_BLOCK, block, exports=_FIGURES)),
        "singular": (
            "Singular pairs",
            _panel(ids.SINGULAR, "Singular pairs", _EXPLAIN_SINGULAR, singular, exports=_TABLES),
        ),
        "copying": ("Copying", _panel(ids.COPYING, "Copying", _EXPLAIN_COPYING, copying, exports=_TABLES)),
    }


def _choice_panel(core: Core, state: CircuitsState, checkpoint: str | None) -> html.Section:
    kinds = {"qk": "QK: what it looks for", "ov": "OV: what it writes"}
    return panel(
        ids.CHOICE,
        "Circuit",
        _EXPLAIN_CIRCUIT,
        [
            html.Div(
                [
                    checkpoint_choice(ids.CHECKPOINT, core.catalog, checkpoint),
                    head_choice(ids.HEADS, ids.HEAD),
                    segments(ids.KIND, "Circuit", state.kind, kinds),
                    dmc.Select(id=ids.LEFT, label="Rows", data=[], allowDeselect=False, className="side"),
                    dmc.Select(id=ids.RIGHT, label="Columns", data=[], allowDeselect=False, className="side"),
                    dmc.Switch(
                        id=ids.BIASES, label="With biases", checked=state.biases, size="sm", className="biases"
                    ),
                    whole_number(  # seen where scores depend on the distance
                        ids.DISTANCE, "Distance back", state.distance, 0, None, placeholder="mean of all",
                        className="side", style={"display": "none"},
                    ),
                ],
                className="circuit-choices",
            ),
            html.P(id=ids.MEANING, className="meaning"),
            html.Div(id=ids.EXACTNESS),
        ],
        controls=[
            link_button(ids.OPEN_ATLAS, "In the atlas", core.links.to("atlas"), hidden=True),
            link_button(ids.OPEN_HEADS, "This head on text", core.links.to("heads"), hidden=True),
        ],
    )  # fmt: skip


def _panel(id: str, title: str, explanation: Any, content: Any, **rest: Any) -> html.Section:
    return panel(id, title, explanation, content, follows=ids.SHOWN, **rest)


def _map() -> list[Any]:
    choices = [
        some_of(ids.MAP_ROWS, "Rows", MAX_CHOSEN),
        some_of(ids.MAP_COLUMNS, "Columns", MAX_CHOSEN),
    ]
    return [html.Div(choices, className="two"), figure(ids.MAP, "graph-circuit")]


def _line_panel(id: str, choice: str, largest: str, smallest: str, title: str) -> html.Section:
    label = title.removeprefix("One ").capitalize()
    content = [one_of(choice, label, "that of the largest entry; type to choose"), caption(id)]
    return _panel(
        id, title, "Its largest and smallest entries.", [*content, _pair(largest, smallest, 190)], exports=_TABLES
    )


def _pair(largest: str, smallest: str, height: int = 470) -> html.Div:
    tables = [
        html.Div([html.H3(id=shell.heading(table), className="table-heading"), _grid(table, height)])
        for table in (largest, smallest)
    ]
    return html.Div(tables, className="two")


def _grid(id: str, height: int) -> dag.AgGrid:
    return grid(id, key="key", height=height, header=34)


def _threshold(state: CircuitsState) -> html.Label:
    field = whole_number(ids.COMPOSITION_Z, None, state.z, 0, 999, size="xs", w=70)
    return html.Label(["z from", field], className="threshold")
