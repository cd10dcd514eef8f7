"""Tables of values, which the browser draws from a store."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, Literal

from dash import dcc, html

from aotlens.conventions import minus
from aotlens.plots import describe, glyphs, is_whitespace
from app.shell import ids

if TYPE_CHECKING:
    import pandas as pd


def value_tables(id: str, label: str, class_name: str = "", *, data: Any = None) -> html.Div:
    """Return a place for tables and tokens, named `label` for screen readers, which come through the store
    `ids.drawn(id)`: those of `value_table` and `chips`, at first `data`. A script draws them with `aotlens.drawTables`
    (static/value_table.js), those of views static/view_page.js: at every step of a callback Dash's renderer asks each
    component of the page whether it has changed, and 250 tokens would slow down every click."""
    classes = f"value-tables {class_name}".strip()
    group = html.Div(id=id, className=classes, role="group", **{"aria-label": label})
    return html.Div([group, dcc.Store(id=ids.drawn(id), data=data)], className="drawn")


#: Heights of tables: as high as the window allows, what a figure of the size `low` leaves of that, or some rows.
Height = Literal["", "fill", "rest", "low"]
#: Rows up to which a table is as high as they are.
_FEW = 16
#: Rows of a view's table that are listed.
_MOST_LISTED = 500


def height_of(rows: Sized) -> Height:
    """Return the height of a table of a few rows, or of many."""
    return "fill" if len(rows) > _FEW else ""


def number_text(value: float | None, form: str) -> str:
    """Return a number as the text of a cell, with a minus sign; a dash for None and NaN."""
    return "–" if value is None or value != value else minus(value, form)


def value_table(
    columns: Sequence[tuple[str, str, str]],
    rows: Sequence[Sequence[Any]],
    *,
    heading: str = "",
    height: Height = "",
    along: Mapping[str, Any] | None = None,
    marks: tuple[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a table for `value_tables`: columns by title, help and kind (`number` and `name`, by which rows can be
    sorted, or a class), rows of texts, `pick`s, `link_cell`s, `bar`s, `mark`s and lists: of tokens in a column of the
    kind `tokens`, else of the parts of a sentence. A click anywhere in a row with one `pick` is a click there. Its
    `height` is a `Height`; by default that of its rows. All links take the fields `along`. `marks` is a field that its
    picks set, whose row is marked, and the value of the field by default."""
    named = [{"title": title, "help": help, "kind": kind} for title, help, kind in columns]
    table = {"heading": heading, "columns": named, "rows": [list(row) for row in rows], "height": height}
    return {**table, "along": dict(along or {}), "marks": marks and list(marks)}


def first_rows(frame: pd.DataFrame, height: Height) -> tuple[dict[str, Any], str]:
    """Return a table of a frame's first rows, of that height if they are many, and a sentence if there are more."""
    columns, cells = [], []
    for name, column in frame.head(_MOST_LISTED).items():
        kind = column.dtype.kind
        columns.append((str(name).replace("_", " "), "", "number" if kind in "fiu" else "name"))
        cells.append([_cell(value, kind) for value in column.astype(object).where(column.notna(), None)])
    rows = list(zip(*cells, strict=True))
    left = f" The first {_MOST_LISTED} of {len(frame):,} rows; the CSV file has all."
    table = value_table(columns, rows, height=height if height_of(rows) else "")
    return table, left if len(frame) > _MOST_LISTED else ""


def _cell(value: Any, kind: str) -> str:
    if kind == "f":
        return number_text(value, ".3f").rstrip("0").rstrip(".") if value is not None else "–"
    return number_text(value, "d") if kind in "iu" else "" if value is None else str(value)


def pick(text: str, title: str, what: Any, class_name: str = "") -> dict[str, Any]:
    """Return a cell that can be clicked: its text and tooltip, and what the page's script gets of it."""
    return {"text": text, "title": title, "pick": what, "class": class_name}


def link_cell(text: str, title: str, page: str, /, **fields: Any) -> dict[str, Any]:
    """Return a cell that leads to another page with these fields of its address."""
    return {"text": text, "title": title, "page": page, "fields": fields}


def bar(share: float, *, whole: bool = False) -> dict[str, Any]:
    """Return a cell with a bar: from the middle, to the right for a positive share of 1; for a share of a `whole`, from
    the left."""
    return {"bar": round(share, 4), "whole": whole}


def chips(
    str_tokens: Sequence[str],
    values: Sequence[float],
    tips: Sequence[str] | None = None,
    *,
    token_ids: Sequence[int] | None = None,
    what: Callable[[int], Any] = lambda position: None,
    selected: int | None = None,
    form: str = ".2f",
    least: float = 0.0,
    heading: str = "",
) -> dict[str, Any]:
    """Return a text's tokens for `value_tables`, shaded by value ÷ the largest |value|, NaN not at all, with the values
    in `form` below them, but for those of less than the share `least` of the largest. `tips` and token ids are added to
    the tooltips. A click on one gives the page's script `what(position)`, unless it is None; one may be selected."""
    top = max((abs(value) for value in values if math.isfinite(value)), default=1.0) or 1.0
    drawn = []
    for position, (text, value) in enumerate(zip(str_tokens, values, strict=True)):
        known = math.isfinite(value)
        kinds = ["chip", *["chip-space"] * is_whitespace(text), *["chip-negative"] * (known and value < 0)]
        facts = [
            describe(text),
            f"id {token_ids[position]}" if token_ids else "",
            f"position {position}",
            tips[position] if tips else "",
        ]
        number = minus(round(value, int(form[-2])) + 0.0, form) if known and abs(value) >= least * top else ""
        chip = pick(glyphs(text), " · ".join(filter(None, facts)), what(position), " ".join(kinds))
        drawn.append({**chip, "heat": round(100 * abs(value) / top, 1) if known else 0, "value": number})
    return {"heading": heading, "chips": drawn, "selected": selected}


def mark(text: str, title: str = "", class_name: str = "", *, note: str = "", heat: float = 0.0) -> dict[str, Any]:
    """Return a marked piece of text: its tooltip, class and small number, and how strongly it is shaded, 0 to 1."""
    return {"text": text, "title": title, "class": class_name, "note": note, "heat": heat}
