"""The Checkpoints page's layout."""

from __future__ import annotations

import dash_ag_grid as dag
from dash import dcc, html

from app import ids
from app.components import tables
from app.components.graph import graph
from app.components.notices import empty
from app.components.panel import panel
from app.services import Services
from app.urlstate import HeadsState, format_heads, parse_checkpoints

_EXPLAIN_CATALOG = (
    "Every model at hand: those given with --checkpoints, your own, and the bundled ones. Losses are nats per token on "
    "held-out text; the bigram loss is that of a smoothed bigram model on the same text, so the difference is what the "
    "model gets from more than the token before. †: of a masked model, per hidden token, beside a unigram model's. "
    "Choose a row."
)
_EXPLAIN_CARD = "What the model was trained on, how, and what it is for."
_EXPLAIN_CURVE = (
    "Losses over training in nats per token, and, where they were logged, the best score of any head for a motif."
)
_EXPLAIN_PARAMETERS = "Every tensor of the checkpoint's file, with its shape and how its numbers are stored."


def layout(services: Services, search: str | None) -> html.Div:
    """The page for an address; with nothing in it, the first checkpoint is chosen."""
    found = services.catalog.list()
    chosen = parse_checkpoints(search) or (found[0].name if found else None)
    rows = [tables.checkpoint_row(info) for info in found]
    table = dag.AgGrid(
        id=ids.CHECKPOINTS_TABLE,
        columnDefs=tables.CHECKPOINT_COLUMNS,
        rowData=rows,
        selectedRows={"ids": [chosen]} if any(row["name"] == chosen for row in rows) else [],
        getRowId="params.data.name",
        defaultColDef=tables.COLUMN,
        dashGridOptions=tables.options(selectable=True),
        style={"height": None},
        className="table",
    )
    curve = [
        graph(ids.CURVE_GRAPH, "graph-curve"),
        html.Div("No training curve was kept with this checkpoint.", id=ids.CURVE_EMPTY, className="hidden"),
    ]
    details = [
        panel(ids.CARD, "Card", _EXPLAIN_CARD, html.Div(id=ids.CARD_BODY), controls=_open_button()),
        html.Div(
            [
                panel(ids.CURVE, "Training", _EXPLAIN_CURVE, curve, exports=("png", "svg")),
                panel(ids.PARAMETERS, "Parameters", _EXPLAIN_PARAMETERS, html.Div(id=ids.PARAMETERS_TABLE)),
            ],
            className="stack",
        ),
    ]
    return html.Div(
        [
            html.H1("Checkpoints", className="sr-only"),
            dcc.Store(id=ids.CHECKPOINTS_CHOSEN, data=chosen),
            panel(ids.CATALOG, "Checkpoints", _EXPLAIN_CATALOG, table if rows else empty("There are no checkpoints.")),
            html.Div(details, className="columns columns-card"),
        ],
        className="checkpoints",
    )


def _open_button() -> dcc.Link:
    return dcc.Link("Open in Heads", id=ids.CHECKPOINTS_OPEN, href=format_heads(HeadsState()), className="button-link")
