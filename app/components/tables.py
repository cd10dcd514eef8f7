"""dash-ag-grid tables: checkpoints and parameters."""

from __future__ import annotations

from typing import Any

import dash_ag_grid as dag
from dash import html

from aotlens.checkpoints import CheckpointInfo
from app.components.notices import empty

COLUMN: dict[str, Any] = {"sortable": True, "resizable": True, "suppressMovable": True, "wrapHeaderText": True}


MASKED_NOTE = (
    "A masked language model: nats per hidden token, which it predicts from both sides, beside a unigram model's on "
    "the same tokens. Not to be compared with losses of next tokens."
)


def number(field: str, title: str, form: str, help: str = "", **rest: Any) -> dict[str, Any]:
    """A numeric column. The formatter is an expression that dash-ag-grid reads without eval."""
    return {
        "field": field,
        "headerName": title,
        "headerTooltip": help or title,
        "type": "rightAligned",
        "valueFormatter": {"function": f"params.value == null ? '–' : d3.format('{form}')(params.value)"},
        **rest,
    }


def _loss(field: str, title: str, help: str, **rest: Any) -> dict[str, Any]:
    """A loss, with a dagger where it is a masked model's, whose numbers are no next-token losses."""
    column = number(field, title, ".3f", help, flex=1, tooltipField="loss_note", **rest)
    shown = column["valueFormatter"]["function"]
    return {**column, "valueFormatter": {"function": f"({shown}) + (params.data.loss_note ? ' †' : '')"}}


CHECKPOINT_COLUMNS: list[dict[str, Any]] = [
    {"field": "name", "headerName": "Name", "minWidth": 136, "flex": 2, "cellClass": "mono",
     "cellClassRules": {"broken": "params.data.status == 'broken'"}, "tooltipField": "problem"},
    {"field": "kind", "headerName": "Attention", "minWidth": 70, "flex": 1,
     "headerTooltip": "mhsa: separate query, key and value matrices; mssa: one matrix per head for all three"},
    _loss("loss", "Validation loss", "Nats per token on held-out text; †: per hidden token", minWidth=74),
    _loss("baseline", "Bigram loss", "A smoothed bigram model on the same text; †: a unigram model", minWidth=64),
    number("layers", "Layers", "d", flex=1, minWidth=56),
    number("heads", "Heads", "d", "Heads per layer", flex=1, minWidth=54),
    number("d_model", "d_model", "d", "Width of the residual stream", flex=1, minWidth=66),
    number("parameters", "Parameters", ",d", "Numbers in the weights' file", flex=1, minWidth=88),
    number("tokens", "Tokens seen", ".3s", "Training tokens", flex=1, minWidth=58),
    {"field": "status", "headerName": "State", "minWidth": 58, "flex": 1, "tooltipField": "problem",
     "cellClassRules": {"broken": "params.value == 'broken'"}},
]  # fmt: skip

_PARAMETER_COLUMNS: list[dict[str, Any]] = [
    {"field": "name", "headerName": "Tensor", "minWidth": 200, "flex": 3, "cellClass": "mono"},
    {"field": "shape", "headerName": "Shape", "minWidth": 110, "flex": 2},
    {"field": "dtype", "headerName": "Stored as", "minWidth": 90, "flex": 1},
    number("numbers", "Numbers", ",d", flex=1, minWidth=100),
]


def options(*, selectable: bool = False) -> dict[str, Any]:
    """Grid options: as tall as its rows, text selectable."""
    chosen: dict[str, Any] = {
        "domLayout": "autoHeight",
        "enableCellTextSelection": True,
        "ensureDomOrder": True,
        "tooltipShowDelay": 300,
    }
    if selectable:
        chosen["rowSelection"] = {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True}
    return chosen


def checkpoint_row(info: CheckpointInfo) -> dict[str, Any]:
    """What the table says of a checkpoint; a broken one has its name and its problem."""
    model = info.model
    loss, baseline, masked = info.losses
    kind = model.get("attention")
    phi = model.get("phi", "softmax")
    return {
        "name": info.name,
        "kind": f"{kind}, {phi}" if kind and phi != "softmax" else kind,
        "layers": model.get("n_layers"),
        "heads": model.get("n_heads"),
        "d_model": model.get("d_model"),
        "parameters": info.n_weights,
        "tokens": info.tokens_seen or None,
        "loss": loss,
        "baseline": baseline,
        "loss_note": MASKED_NOTE if masked else None,
        "status": "broken" if info.problem else "ready",
        "problem": info.problem,
    }


def parameters(rows: list[dict[str, Any]]) -> Any:
    """The tensors of a checkpoint, and how many weights they are; counts of training tokens are no weights."""
    if not rows:
        return empty("Nothing could be read.")
    total = sum(row["numbers"] for row in rows if row["name"] != "unigram_counts")
    return [
        html.P(f"{total:,} weights in {len(rows)} tensors.", className="panel-explanation"),
        dag.AgGrid(
            columnDefs=_PARAMETER_COLUMNS,
            rowData=rows,
            defaultColDef=COLUMN,
            dashGridOptions={"domLayout": "normal", "enableCellTextSelection": True},
            className="table",
            style={"height": "320px"},
        ),
    ]
