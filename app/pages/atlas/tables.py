"""The Atlas page's tables: all heads, and what belongs to one of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dash import html

from aotlens.heads import label_words
from app.pages.atlas import words
from app.shell.tables import number

if TYPE_CHECKING:
    import pandas as pd

#: What is listed of every head, where it was measured.
LISTED = (
    "label", "margin", "induction_random", "copying", "constancy", "constancy_without_first", "loss_position_mean",
    "loss_fixed_pattern", "reads", "feeds", "mean_distance", "entropy", "ffn_error",
)  # fmt: skip
_FORMS = {"mean_distance": ".1f", "loss_position_mean": "+.3f", "loss_fixed_pattern": "+.3f"}


def columns_of(frame: pd.DataFrame, *more: str) -> list[str]:
    """The columns that are listed: the usual ones that there are, and `more`."""
    wanted = [name for name in LISTED if name in frame]
    return [*wanted, *(name for name in dict.fromkeys(more) if name in frame and name not in wanted)]


def head_columns(frame: pd.DataFrame, listed: Sequence[str]) -> list[dict[str, Any]]:
    """Definitions of the columns, the head first."""
    defs: list[dict[str, Any]] = [
        {"field": "order", "headerName": "head", "headerTooltip": "Layer and head; click one for its dossier",
         "cellClass": "pick", "pinned": "left", "valueFormatter": {"function": "params.data.name"}}
    ]  # fmt: skip
    for column in listed:
        if frame[column].dtype.kind in "fiu":
            defs.append(number(column, words.title(column), _FORMS.get(column, ".2f"), words.help_of(column)))
        else:
            defs.append({"field": column, "headerName": words.title(column), "headerTooltip": words.help_of(column)})
    return defs


def head_rows(frame: pd.DataFrame, listed: Sequence[str]) -> list[dict[str, Any]]:
    """One record a head."""
    rows = []
    for record in frame.to_dict("records"):
        layer, head = int(record["layer"]), int(record["head"])
        row: dict[str, Any] = {"name": record["name"], "order": layer * 10**6 + head, "goto": [layer, head]}
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


def small_table(titles: Sequence[str], rows: Sequence[Sequence[Any]], *, numbers: Sequence[int] = ()) -> html.Table:
    """A table of a few rows; `numbers` are the columns that are numbers."""

    def kind(place: int) -> str:
        return "number" if place in numbers else ""

    head = html.Tr([html.Th(title, scope="col", className=kind(place)) for place, title in enumerate(titles)])
    body = [html.Tr([html.Td(cell, className=kind(place)) for place, cell in enumerate(row)]) for row in rows]
    return html.Table([html.Thead(head), html.Tbody(body)], className="effect atlas-small")
