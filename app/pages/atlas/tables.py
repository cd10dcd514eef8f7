"""The Atlas page's table of all heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aotlens.heads import HEAD_SCORES, label_words
from aotlens.plots.atlas import column_help, column_title
from app.shell.tables import number

if TYPE_CHECKING:
    import pandas as pd

#: The columns that are listed of every head, where they were measured.
LISTED = (
    "label", "margin", "induction_random", "copying", "pattern_consistency", "pattern_consistency_without_first",
    "loss_position_mean", "loss_fixed_pattern", "reads", "feeds", "mean_distance", "entropy", "ffn_error",
)  # fmt: skip
_FORMS = {
    "mean_distance": ".1f",
    **dict.fromkeys(("loss_position_mean", "loss_fixed_pattern", "shapley", "low", "high", "first", "last"), "+.3f"),
}


def columns_of(frame: pd.DataFrame, *more: str) -> list[str]:
    """Return the columns that are listed: the usual ones that there are, and `more`."""
    wanted = [name for name in LISTED if name in frame]
    return [*wanted, *(name for name in dict.fromkeys(more) if name in frame and name not in wanted)]


def head_columns(frame: pd.DataFrame, listed: Sequence[str]) -> list[dict[str, Any]]:
    """Return definitions of the columns, the head first."""
    defs: list[dict[str, Any]] = [
        {"field": "order", "headerName": "head", "headerTooltip": "Layer and head; click one for its summary",
         "cellClass": "pick", "pinned": "left", "valueFormatter": {"function": "params.data.name"}}
    ]  # fmt: skip
    sentences = {name: score.sentence for name, score in HEAD_SCORES.items()}
    for column in listed:
        meaning = column_help(column, sentences)
        if frame[column].dtype.kind in "fiu":
            defs.append(number(column, column_title(column), _FORMS.get(column, ".2f"), meaning))
        else:
            defs.append({"field": column, "headerName": column_title(column), "headerTooltip": meaning})
    return defs


def head_rows(frame: pd.DataFrame, listed: Sequence[str]) -> list[dict[str, Any]]:
    """Return one record a head."""
    rows = []
    for record in frame.to_dict("records"):
        layer, head = int(record["layer"]), int(record["head"])
        row: dict[str, Any] = {"name": f"{layer}.{head}", "order": layer * 10**6 + head, "goto": [layer, head]}
        for column in listed:
            value = record[column]
            if column == "label":
                row[column] = label_words(value, record["resting"])
            elif isinstance(value, str):
                row[column] = value.replace("_", " ")
            else:
                row[column] = None if math.isnan(value) else float(value)
        rows.append(row)
    return rows
