"""The Circuits page's tables: the whole matrix's ends, and those of one row and one column."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from dash import Output

from app.pages.circuits import words
from app.pages.circuits.callbacks import chosen
from app.pages.circuits.ids import ids
from app.pages.circuits.service import Choice, Circuits, Ends, Shown
from app.pages.circuits.tables import entry_columns, entry_rows
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.props import props, stores, values

Axis = Literal["row", "column"]

#: By axis: the panel, the choice of one, and its two tables.
_LINES: dict[Axis, tuple[str, str, tuple[str, str]]] = {
    "row": (ids.ROW, ids.ROW_CHOICE, (ids.ROW_LARGEST, ids.ROW_SMALLEST)),
    "column": (ids.COLUMN, ids.COLUMN_CHOICE, (ids.COLUMN_LARGEST, ids.COLUMN_SMALLEST)),
}


def register(app: App, circuits: Circuits) -> None:
    """The tables' callbacks."""
    of_choice = partial(guarded, app, reads={"choice": chosen})

    @of_choice(
        panel=ids.TOP, inputs=stores(choice=shell.seen(ids.TOP)), output=_two_tables(ids.TOP_LARGEST, ids.TOP_SMALLEST)
    )
    def list_top(choice: Choice) -> Answer:
        return _tables(circuits.circuit(choice), circuits.top(choice), ("Largest", "Smallest"))

    for axis, (panel, wanted, tables) in _LINES.items():

        @of_choice(
            panel=panel,
            inputs=stores(choice=shell.seen(panel)) | values(value=wanted),
            parts=("title", "explanation", "caption"),
            output=props("label", label=wanted) | _two_tables(*tables),
            empty={"title": f"One {axis}", "label": words.titled(axis)},
        )
        def list_line(choice: Choice, value: str | None, axis: Axis = axis) -> Answer:
            shown, ends = circuits.circuit(choice), line(circuits, choice, axis, value)
            these, of_row = words.WORDS[choice.kind], axis == "row"
            labels, line_words = (shown.rows, these.row) if of_row else (shown.columns, these.column)
            role, other = words.row_role(shown), words.column_role(shown)
            if not of_row:
                role, other = other, role
            token = f"‹{labels.shown(line_index(circuits, choice, axis, value))}›"
            return {
                **_tables(shown, ends, (line_words.largest, line_words.smallest), rows=not of_row, columns=of_row),
                "title": line_words.title.format(it=token),
                "explanation": f"The {axis} of {token} as {role}: its entries with every {other}.",
                "caption": words.row_caption(shown, ends) if of_row else these.column_caption,
                "label": words.titled(role),
            }


def line_index(circuits: Circuits, choice: Choice, axis: Axis, value: str | None) -> int:
    """The row or column that is chosen, or that of the largest entry."""
    if value is not None:
        return int(value)
    largest = circuits.top(choice).largest
    return int((largest.rows if axis == "row" else largest.columns)[0])


def line(circuits: Circuits, choice: Choice, axis: Axis, value: str | None) -> Ends:
    """Both ends of that row or column."""
    index = line_index(circuits, choice, axis, value)
    return circuits.row(choice, index) if axis == "row" else circuits.column(choice, index)


def _two_tables(largest: str, smallest: str) -> dict[str, Output]:
    return {
        f"{end}_{name}": output
        for end, table in (("largest", largest), ("smallest", smallest))
        for name, output in (
            ("columns", Output(table, "columnDefs")),
            ("rows", Output(table, "rowData")),
            ("heading", Output(shell.heading(table), "children")),
        )
    }


def _tables(
    shown: Shown, ends: Ends, headings: tuple[str, str], *, rows: bool = True, columns: bool = True
) -> dict[str, Any]:
    """What `_two_tables` take."""
    definitions = entry_columns(shown, rows=rows, columns=columns)
    return {
        "largest_columns": definitions,
        "largest_rows": entry_rows(shown, ends.largest, ends.largest_relative),
        "largest_heading": headings[0],
        "smallest_columns": definitions,
        "smallest_rows": entry_rows(shown, ends.smallest, ends.smallest_relative),
        "smallest_heading": headings[1],
    }
