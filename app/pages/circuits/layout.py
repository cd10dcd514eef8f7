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
from app.shell.panel import panel
from app.shell.prompt import checkpoint_choice
from app.shell.tables import grid

_EXPLAIN_CIRCUIT = (
    "Read from the weights alone: no text is run. QK says which tokens a head attends to from which, OV what it does "
    "to the output when it attends. The address in your browser holds everything you choose here."
)
_EXPLAIN_MAP = (
    "Exact entries for some rows and columns; without a choice, those of the entries largest in size. Blue is "
    "positive, orange negative. Point at one for its value; click it to list its row and column below."
)
_EXPLAIN_TOP = (
    "The largest and the smallest of all entries, exact over the whole matrix. Click a token to list everything about "
    "it below."
)
_EXPLAIN_OVERVIEW = (
    "All entries, in blocks, in order of id (of tokens: single bytes, then pieces of text, frequent ones first). Click "
    "a block to see its entries."
)
_EXPLAIN_BLOCK = "The block that is framed in the whole matrix, in full or, if it is large, where it is largest."
_EXPLAIN_SINGULAR = (
    "A circuit is a sum of few products, strongest first: a pattern over rows times a pattern over columns. A row "
    "and a column listed side by side raise each other's entry; the + rows with the − columns lower it. Which side is "
    "called + is arbitrary."
)
_EXPLAIN_EIGENVALUES = (
    "Where rows and columns are the same, an eigenvector goes in and comes out multiplied by its eigenvalue. Mostly "
    "positive real parts mean copying (OV) or like attending to like (QK)."
)
_EXPLAIN_COMPOSITION = (
    "Which earlier heads this head reads, and which later ones read it: ‖W_first W_second‖ / (‖W_first‖ ‖W_second‖), "
    "between 0 and 1. Two unrelated heads are not at 0 either, so a line is drawn only where a pair lies above its "
    "null: the same two heads, one of them turned at random against the other. A stream that all heads share lifts "
    "many pairs above it; the place among all heads that the later one can read tells them apart. Far below the null "
    "is not absence of composition, and neither the score nor z sees size: look at the norm. Click a head to go there, "
    "or what it is read by (queries, keys, values) for the later head's QK or OV circuit through the earlier one."
)
_EXPLAIN_COPYING = (
    "How often attending to a token promotes that same token above all others, over the whole vocabulary; and the "
    "copying score Σλ / Σ|λ| of the eigenvalues, 1 for pure copying, −1 for pure suppression."
)

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
    figures = ("png", "svg", "csv", "json")
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
                    _panel(ids.MAP, "Map", _EXPLAIN_MAP, _map(), exports=figures),
                    _panel(
                        ids.TOP, "Top entries", _EXPLAIN_TOP, _pair(ids.TOP_LARGEST, ids.TOP_SMALLEST, 520),
                        exports=("csv",),
                    ),
                    _line_panel(ids.ROW, ids.ROW_CHOICE, ids.ROW_LARGEST, ids.ROW_SMALLEST, "One row"),
                    _line_panel(
                        ids.COLUMN, ids.COLUMN_CHOICE, ids.COLUMN_LARGEST, ids.COLUMN_SMALLEST,
                        "One column",
                    ),
                    _panel(
                        ids.OVERVIEW, "Whole matrix", _EXPLAIN_OVERVIEW,
                        [caption(ids.OVERVIEW), figure(ids.OVERVIEW, "graph-circuit")],
                        controls=switch_of(
                            ids.OVERVIEW_STATISTIC, "What stands for a block", state.statistic, _STATISTICS
                        ),
                        exports=figures,
                    ),
                    _panel(
                        ids.BLOCK, "One block", _EXPLAIN_BLOCK,
                        [
                            caption(ids.BLOCK),
                            figure(ids.BLOCK, "graph-block"),
                            _grid(shell.table(ids.BLOCK), 190),
                        ],
                        exports=figures,
                    ),
                    _panel(
                        ids.EIGENVALUES, "Eigenvalues", _EXPLAIN_EIGENVALUES,
                        [caption(ids.EIGENVALUES), figure(ids.EIGENVALUES, "graph-circuit")],
                        exports=figures,
                    ),
                    _panel(
                        ids.SINGULAR, "Singular pairs", _EXPLAIN_SINGULAR,
                        [
                            caption(ids.SINGULAR),
                            html.Div(id=shell.body(ids.SINGULAR), className="singular-box", tabIndex=0),
                        ],
                        exports=("csv",),
                    ),
                    _panel(
                        ids.COMPOSITION, "Composition", _EXPLAIN_COMPOSITION,
                        [
                            caption(ids.COMPOSITION),
                            figure(ids.COMPOSITION, "graph-composition"),
                            _grid(shell.table(ids.COMPOSITION), 220),
                        ],
                        controls=_threshold(state), exports=figures,
                    ),
                    _panel(
                        ids.COPYING, "Copying", _EXPLAIN_COPYING,
                        [caption(ids.COPYING), _grid(shell.table(ids.COPYING), 380)], exports=("csv",),
                    ),
                ],
                id=ids.BODY,
                className="circuits-body",
                **{"data-problem": "loading"},
            ),
        ],
        className="circuits",
    )  # fmt: skip


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
                ],
                className="circuit-choices",
            ),
            html.P(id=ids.MEANING, className="meaning"),
            html.Div(id=ids.EXACTNESS),
        ],
        controls=link_button(ids.OPEN_HEADS, "This head on text", core.links.to("heads"), hidden=True),
    )  # fmt: skip


def _panel(id: str, title: str, explanation: str, content: Any, **rest: Any) -> html.Section:
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
        id, title, "Its largest and smallest entries.", [*content, _pair(largest, smallest)], exports=("csv",)
    )


def _pair(largest: str, smallest: str, height: int = 300) -> html.Div:
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
