"""Tables: those of dash-ag-grid, and lighter ones that the browser draws from a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import dash_ag_grid as dag
from dash import html

from aotlens.conventions import minus
from aotlens.plots import describe, glyphs, is_whitespace
from app.shell.drawn import drawn

if TYPE_CHECKING:
    import pandas as pd

COLUMN: dict[str, Any] = {"sortable": True, "resizable": True, "suppressMovable": True, "wrapHeaderText": True}
#: The events on which columns are made as wide as what is in them (static/fit_columns.js).
FITTED: dict[str, list[str]] = {
    event: ["fitColumns(params.api)"]
    for event in ("firstDataRendered", "rowDataUpdated", "newColumnsLoaded", "gridSizeChanged", "sortChanged")
}
_OPTIONS: dict[str, Any] = {
    "enableCellTextSelection": True, "tooltipShowDelay": 300, "rowHeight": 26, "headerHeight": 48,
    "suppressColumnVirtualisation": True, "autoSizePadding": 4,
}  # fmt: skip


def number(field: str, title: str, form: str, help: str = "", **rest: Any) -> dict[str, Any]:
    """Return a numeric column. The formatter is an expression that dash-ag-grid reads without eval."""
    return {
        "field": field,
        "headerName": title,
        "headerTooltip": help or title,
        "type": "rightAligned",
        "valueFormatter": {"function": f"params.value == null ? '–' : d3.format('{form}')(params.value)"},
        **rest,
    }


def listing(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the columns and rows of `grid(…, key="row")` that show a table."""
    fields = [f"c{place}" for place in range(len(frame.columns))]  # a name may have a dot, which is a path here
    columns = []
    for place, (name, column) in zip(fields, frame.items(), strict=True):
        title, kind = str(name).replace("_", " "), column.dtype.kind
        form = ".3~f" if kind == "f" else "d"
        columns.append(number(place, title, form) if kind in "fiu" else {"field": place, "headerName": title})
    plain = frame.astype(object).where(frame.notna(), None).itertuples(index=False, name=None)
    rows = [{"row": str(place), **dict(zip(fields, row, strict=True))} for place, row in enumerate(plain)]
    return {"columns": columns, "rows": rows}


def value_tables(id: str, label: str, class_name: str = "") -> html.Div:
    """Return a place for tables that a callback answers for the store `ids.drawn(id)`, each by `value_table`; a
    script draws them with `aotlens.drawTables` (static/value_table.js), those of views static/view_page.js."""
    return drawn(id, f"value-tables {class_name}".strip(), label)


#: Chips with less than this share of the largest value have no number.
_NUMBERED = 0.04
#: Heights of tables: as high as the window allows, what a figure of the size `low` leaves of that, or some rows.
Height = Literal["", "fill", "rest", "low"]
#: Rows up to which a table is as high as they are.
_FEW = 16


def height_of(rows: Sequence[Any]) -> Height:
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
    """Return a table for `value_tables`: columns by title, help and kind (`number`, by which rows can be sorted, or a
    class), rows of texts, `pick`s, `link`s, `bar`s, `mark`s and lists: of tokens in a column of the kind `tokens`, else
    of the parts of a sentence. A click anywhere in a row with one `pick` is a click there. Its `height` is a `Height`;
    by default that of its rows. All links take the fields `along`. `marks` is a field that its picks set, whose row is
    marked, and the value of the field by default."""
    named = [{"title": title, "help": help, "kind": kind} for title, help, kind in columns]
    table = {"heading": heading, "columns": named, "rows": [list(row) for row in rows], "height": height}
    return {**table, "along": dict(along or {}), "marks": marks and list(marks)}


def pick(text: str, title: str, what: Any, class_name: str = "") -> dict[str, Any]:
    """Return a cell that can be clicked: its text and tooltip, and what the page's script gets of it."""
    return {"text": text, "title": title, "pick": what, "class": class_name}


def link(text: str, title: str, page: str, /, **fields: Any) -> dict[str, Any]:
    """Return a cell that leads to another page with these fields of its address."""
    return {"text": text, "title": title, "page": page, "fields": fields}


def bar(share: float) -> dict[str, Any]:
    """Return a cell with a bar from the middle, to the right for a positive share of 1."""
    return {"bar": round(share, 4)}


def chips(
    str_tokens: Sequence[str],
    values: Sequence[float],
    what: Callable[[int], Any],
    *,
    selected: int,
    tip: Callable[[float], str],
    heading: str = "",
) -> dict[str, Any]:
    """Return a text's tokens for `value_tables`, shaded by values, the selected one marked: a click gives the page's
    script `what(position)`. `tip(value)` is what a tooltip says of a value."""
    top = max(map(abs, values), default=0.0) or 1.0
    drawn = []
    for position, (text, value) in enumerate(zip(str_tokens, values, strict=True)):
        kinds = ["chip", *["chip-space"] * is_whitespace(text), *["chip-negative"] * (value < 0)]
        title = f"{describe(text)} · position {position} · {tip(value)}"
        number = f"{round(value, 1) + 0.0:+.1f}".replace("-", "−") if abs(value) >= _NUMBERED * top else ""
        chip = pick(glyphs(text), title, what(position), " ".join(kinds))
        drawn.append({**chip, "heat": round(100 * abs(value) / top, 1), "value": number})
    return {"heading": heading, "chips": drawn, "selected": selected}


def mark(text: str, title: str = "", class_name: str = "", *, note: str = "", heat: float = 0.0) -> dict[str, Any]:
    """Return a marked piece of text: its tooltip, class and small number, and how strongly it is shaded, 0 to 1."""
    return {"text": text, "title": title, "class": class_name, "note": note, "heat": heat}


def grid(
    id: str, columns: Sequence[dict[str, Any]] = (), *, key: str, height: int, header: int = 48, **rest: Any
) -> dag.AgGrid:
    """Return an empty table, filled by a callback; `key` is the field that tells its rows apart, sizes are pixels."""
    return dag.AgGrid(
        id=id,
        columnDefs=list(columns),
        rowData=[],
        defaultColDef=COLUMN,
        eventListeners=FITTED,
        getRowId=f"params.data.{key}",
        dashGridOptions={**_OPTIONS, "headerHeight": header, **rest},
        className="table",
        style={"height": f"{height}px"},
    )


#: `grid(…, rowSelection=CHOOSE)`: a click chooses a row.
CHOOSE = {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True}
