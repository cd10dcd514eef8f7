"""The Checkpoints page's tables: what there is, and a checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_ag_grid as dag
from dash import html

from app.shell.notices import empty
from app.shell.tables import CHOOSE, COLUMN, FITTED, number


def checkpoints_grid(id: str, rows: Sequence[dict[str, Any]], chosen: str | None) -> dag.AgGrid:
    """Return every checkpoint; one row can be chosen."""
    return dag.AgGrid(
        id=id,
        columnDefs=_CHECKPOINTS,
        rowData=list(rows),
        selectedRows={"ids": [chosen]} if any(row["name"] == chosen for row in rows) else [],
        getRowId="params.data.name",
        defaultColDef=COLUMN,
        eventListeners=FITTED,
        dashGridOptions={
            "domLayout": "autoHeight", "enableCellTextSelection": True, "ensureDomOrder": True, "tooltipShowDelay": 300,
            "rowSelection": CHOOSE, "suppressColumnVirtualisation": True,
        },
        style={"height": None},
        className="table",
    )  # fmt: skip


def parameters(rows: Sequence[dict[str, Any]]) -> Any:
    """Return the tensors of a checkpoint, and how many weights they are; counts of training tokens are no weights."""
    if not rows:
        return empty("Nothing could be read.")
    total = sum(row["numbers"] for row in rows if row["name"] != "unigram_counts")
    return [
        html.P(f"{total:,} weights in {len(rows)} tensors.", className="caption"),
        dag.AgGrid(
            columnDefs=_PARAMETERS,
            rowData=list(rows),
            defaultColDef=COLUMN,
            eventListeners=FITTED,
            dashGridOptions={"domLayout": "normal", "enableCellTextSelection": True},
            className="table",
            style={"height": "320px"},
        ),
    ]


def _loss(field: str, title: str, help: str, **rest: Any) -> dict[str, Any]:
    """A loss, with a dagger where it is a masked model's or of images, and no next-token loss."""
    column = number(field, title, ".3f", help, tooltipField="loss_note", **rest)
    formatted = column["valueFormatter"]["function"]
    return {**column, "valueFormatter": {"function": f"({formatted}) + (params.data.loss_note ? ' †' : '')"}}


_CHECKPOINTS: list[dict[str, Any]] = [
    {"field": "name", "headerName": "Name", "cellClass": "mono",
     "cellClassRules": {"broken": "params.data.status == 'broken'"}, "tooltipField": "problem"},
    {"field": "kind", "headerName": "Attention",
     "headerTooltip": "mhsa: separate query, key and value matrices; mssa: one matrix per head for all three"},
    _loss("loss", "Validation loss", "Nats per held-out token; †: per hidden token, per image, or regression's error"),
    _loss(
        "baseline", "Baseline loss",
        "On the same data: a smoothed bigram model; †: a unigram model, the classes' shares, or least squares",
    ),
    number("layers", "Layers", "d"),
    number("heads", "Heads", "d", "Heads per layer"),
    number("d_model", "d_model", "d", "Width of the residual stream"),
    number("parameters", "Parameters", ",d", "Numbers in the weights' file"),
    number("tokens", "Tokens seen", ".3s", "Training tokens"),
    {"field": "status", "headerName": "State", "tooltipField": "problem",
     "cellClassRules": {"broken": "params.value == 'broken'"}},
]  # fmt: skip

_PARAMETERS: list[dict[str, Any]] = [
    {"field": "name", "headerName": "Tensor", "cellClass": "mono"},
    {"field": "shape", "headerName": "Shape"},
    {"field": "dtype", "headerName": "Stored as"},
    number("numbers", "Numbers", ",d"),
]
