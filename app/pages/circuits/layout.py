"""The Circuits page's layout."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from app import ids
from app.components.choices import head_picker, one_of, some_of
from app.components.circuit_tables import grid
from app.components.graph import graph
from app.components.panel import panel
from app.components.prompt import checkpoint_choice
from app.services import Services
from app.urlstate import MAX_CHOSEN, CircuitsState, HeadsState, format_heads, parse_circuits

_EXPLAIN_CIRCUIT = (
    "Read from the weights alone: no text is run. QK says which tokens a head attends to from which, OV what it does "
    "to the output when it attends. The address in your browser holds everything you choose here."
)
_EXPLAIN_ENTRIES = (
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
    "between 0 and 1. Two unrelated heads are not at 0 either, so a line is drawn only where a pair lies far above "
    "independent random heads of this shape. Click a head to go there."
)
_EXPLAIN_COPYING = (
    "How often attending to a token promotes that same token above all others, over the whole vocabulary; and the "
    "copying score Σλ / Σ|λ| of the eigenvalues, 1 for pure copying, −1 for pure suppression."
)


def layout(services: Services, search: str | None) -> html.Div:
    """The page for an address; with nothing in it, the first head of the first checkpoint."""
    state = parse_circuits(search)
    checkpoint = state.checkpoint or services.catalog.default()
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
            dcc.Store(id=ids.CIRCUITS_ASKED, data=asked),
            dcc.Store(id=ids.CIRCUIT),
            dcc.Store(id=ids.CIRCUITS_HEAD, data=state.head),
            dcc.Store(id=ids.BLOCK, data=state.block),
            dcc.Download(id=ids.CIRCUITS_DOWNLOAD),
            _circuit_panel(services, state, checkpoint),
            html.Div(
                [
                    panel(ids.ENTRIES, "Map", _EXPLAIN_ENTRIES, _entries(), exports=figures),
                    panel(
                        ids.TOP, "Top entries", _EXPLAIN_TOP, _pair(ids.TOP_LARGEST, ids.TOP_SMALLEST, 520),
                        exports=("csv",),
                    ),
                    _line_panel(ids.ROW, ids.ROW_CHOICE, ids.ROW_CAPTION, ids.ROW_LARGEST, ids.ROW_SMALLEST, "One row"),
                    _line_panel(
                        ids.COLUMN, ids.COLUMN_CHOICE, ids.COLUMN_CAPTION, ids.COLUMN_LARGEST, ids.COLUMN_SMALLEST,
                        "One column",
                    ),
                    panel(
                        ids.OVERVIEW, "Whole matrix", _EXPLAIN_OVERVIEW,
                        [_caption(ids.OVERVIEW_CAPTION), graph(ids.OVERVIEW_GRAPH, "graph-circuit")],
                        controls=_statistic(state), exports=figures,
                    ),
                    panel(
                        ids.BLOCK_PANEL, "One block", _EXPLAIN_BLOCK,
                        [
                            _caption(ids.BLOCK_CAPTION),
                            graph(ids.BLOCK_GRAPH, "graph-block"),
                            grid(ids.BLOCK_TABLE, 190),
                        ],
                        exports=figures,
                    ),
                    panel(
                        ids.EIGENVALUES, "Eigenvalues", _EXPLAIN_EIGENVALUES,
                        [_caption(ids.EIGENVALUES_CAPTION), graph(ids.EIGENVALUES_GRAPH, "graph-circuit")],
                        exports=figures,
                    ),
                    panel(
                        ids.SINGULAR, "Singular pairs", _EXPLAIN_SINGULAR,
                        [_caption(ids.SINGULAR_CAPTION), html.Div(id=ids.SINGULAR_TABLE, className="singular-box")],
                        exports=("csv",),
                    ),
                    panel(
                        ids.COMPOSITION, "Composition", _EXPLAIN_COMPOSITION,
                        [
                            _caption(ids.COMPOSITION_CAPTION),
                            graph(ids.COMPOSITION_GRAPH, "graph-composition"),
                            grid(ids.COMPOSITION_TABLE, 220),
                        ],
                        controls=_threshold(state), exports=figures,
                    ),
                    panel(
                        ids.COPYING, "Copying", _EXPLAIN_COPYING,
                        [_caption(ids.COPYING_CAPTION), grid(ids.COPYING_TABLE, 380)], exports=("csv",),
                    ),
                ],
                id=ids.CIRCUITS_BODY,
                className="circuits-body",
                **{"data-problem": "loading"},
            ),
        ],
        className="circuits",
    )  # fmt: skip


def _circuit_panel(services: Services, state: CircuitsState, checkpoint: str | None) -> html.Section:
    link = dcc.Link(
        "This head on text", id=ids.OPEN_HEADS, href=format_heads(HeadsState()), className="button-link hidden"
    )
    kind = dmc.SegmentedControl(
        id=ids.CIRCUITS_KIND,
        data=[{"value": "qk", "label": "QK: what it looks for"}, {"value": "ov", "label": "OV: what it writes"}],
        value=state.kind,
        size="sm",
        **{"aria-label": "Kind of circuit"},
    )
    return panel(
        ids.CIRCUIT_PANEL,
        "Circuit",
        _EXPLAIN_CIRCUIT,
        [
            html.Div(
                [
                    checkpoint_choice(ids.CIRCUITS_CHECKPOINT, services.catalog, checkpoint),
                    html.Div(
                        [
                            html.Span("Head (layer.head)", className="field-label"),
                            head_picker(ids.CIRCUITS_HEADS, ids.CIRCUITS_HEAD),
                        ]
                    ),
                    html.Div([html.Span("Circuit", className="field-label"), kind]),
                    dmc.Select(id=ids.CIRCUITS_LEFT, label="Rows", data=[], allowDeselect=False, className="side"),
                    dmc.Select(id=ids.CIRCUITS_RIGHT, label="Columns", data=[], allowDeselect=False, className="side"),
                    dmc.Switch(
                        id=ids.CIRCUITS_BIASES, label="With biases", checked=state.biases, size="sm", className="biases"
                    ),
                ],
                className="circuit-choices",
            ),
            html.P(id=ids.CIRCUIT_MEANING, className="meaning"),
            html.Div(id=ids.CIRCUIT_EXACTNESS),
        ],
        controls=link,
    )  # fmt: skip


def _entries() -> list[Any]:
    choices = [
        some_of(ids.ENTRIES_ROWS, "Rows", MAX_CHOSEN),
        some_of(ids.ENTRIES_COLUMNS, "Columns", MAX_CHOSEN),
    ]
    return [html.Div(choices, className="two"), graph(ids.ENTRIES_GRAPH, "graph-circuit")]


def _line_panel(id: str, choice: str, caption: str, largest: str, smallest: str, title: str) -> html.Section:
    label = title.removeprefix("One ").capitalize()
    content = [one_of(choice, label, "that of the largest entry; type to choose"), _caption(caption)]
    return panel(id, title, "", [*content, _pair(largest, smallest)], exports=("csv",))


def _pair(largest: str, smallest: str, height: int = 300) -> html.Div:
    tables = [
        html.Div([html.H3(id=ids.heading(table), className="table-heading"), grid(table, height)])
        for table in (largest, smallest)
    ]
    return html.Div(tables, className="two")


def _caption(id: str) -> html.P:
    return html.P(id=id, className="caption")


def _statistic(state: CircuitsState) -> dmc.SegmentedControl:
    return dmc.SegmentedControl(
        id=ids.OVERVIEW_STATISTIC,
        data=[{"value": "extreme", "label": "largest in size"}, {"value": "mean", "label": "mean"}],
        value=state.statistic,
        size="xs",
        **{"aria-label": "What stands for a block"},
    )


def _threshold(state: CircuitsState) -> html.Label:
    field = dmc.NumberInput(
        id=ids.COMPOSITION_Z, value=state.z, min=0, max=999, step=1, allowDecimal=False, size="xs", w=70, debounce=300
    )
    return html.Label(["from", field, "standard deviations"], className="threshold")
