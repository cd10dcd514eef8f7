"""The Circuits page's tables: the whole matrix's ends, and those of one row and one column."""

from __future__ import annotations

from functools import partial
from typing import Any

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


def register(app: App, circuits: Circuits) -> None:
    """The tables' callbacks."""
    of_choice = partial(guarded, app, reads={"choice": chosen})

    @of_choice(
        panel=ids.TOP, inputs=stores(choice=shell.seen(ids.TOP)), output=_two_tables(ids.TOP_LARGEST, ids.TOP_SMALLEST)
    )
    def list_top(choice: Choice) -> Answer:
        return _tables(circuits.circuit(choice), circuits.top(choice), ("Largest", "Smallest"))

    @of_choice(
        panel=ids.ROW,
        inputs=stores(choice=shell.seen(ids.ROW)) | values(value=ids.ROW_CHOICE),
        parts=("title", "explanation", "caption"),
        output=props("label", label=ids.ROW_CHOICE) | _two_tables(ids.ROW_LARGEST, ids.ROW_SMALLEST),
        empty={"title": "One row", "label": "Row"},
    )
    def list_row(choice: Choice, value: str | None) -> Answer:
        index = first_row(circuits, choice, value)
        shown, ends = circuits.circuit(choice), circuits.row(choice, index)
        these, role = words.WORDS[choice.kind], words.row_role(shown)
        token = f"‹{shown.rows.shown(index)}›"
        return {
            **_tables(shown, ends, (these.row_largest, these.row_smallest), rows=False),
            "title": these.row_title.format(it=token),
            "explanation": f"The row of {token} as {role}: its entries with every {words.column_role(shown)}.",
            "caption": words.row_caption(shown, ends),
            "label": words.titled(role),
        }

    @of_choice(
        panel=ids.COLUMN,
        inputs=stores(choice=shell.seen(ids.COLUMN)) | values(value=ids.COLUMN_CHOICE),
        parts=("title", "explanation", "caption"),
        output=props("label", label=ids.COLUMN_CHOICE) | _two_tables(ids.COLUMN_LARGEST, ids.COLUMN_SMALLEST),
        empty={"title": "One column", "label": "Column"},
    )
    def list_column(choice: Choice, value: str | None) -> Answer:
        index = first_column(circuits, choice, value)
        shown, ends = circuits.circuit(choice), circuits.column(choice, index)
        these, role = words.WORDS[choice.kind], words.column_role(shown)
        token = f"‹{shown.columns.shown(index)}›"
        return {
            **_tables(shown, ends, (these.column_largest, these.column_smallest), columns=False),
            "title": these.column_title.format(it=token),
            "explanation": f"The column of {token} as {role}: its entries with every {words.row_role(shown)}.",
            "caption": these.column_caption,
            "label": words.titled(role),
        }


def first_row(circuits: Circuits, choice: Choice, value: str | None) -> int:
    """The row that is chosen, or that of the largest entry."""
    return int(value) if value is not None else int(circuits.top(choice).largest.rows[0])


def first_column(circuits: Circuits, choice: Choice, value: str | None) -> int:
    """The column that is chosen, or that of the largest entry."""
    return int(value) if value is not None else int(circuits.top(choice).largest.columns[0])


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
