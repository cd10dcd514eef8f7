"""The Circuits page's tables: the whole matrix's ends, and those of one row and one column."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output

from app import ids
from app.components.circuit_tables import entry_columns, entry_rows
from app.pages.circuits.callbacks import chosen
from app.pages.guard import guarded
from app.services import Services
from app.services import circuit_words as words
from app.services.circuits import Choice, Ends, Shown

_NOTHING = ([], [], "", [], [], "")


def register(app: Dash, services: Services) -> None:
    """The tables' callbacks."""

    @app.callback(
        *_outputs(ids.TOP_LARGEST),
        *_outputs(ids.TOP_SMALLEST),
        Output(ids.notice(ids.TOP), "children"),
        Input(ids.CIRCUIT, "data"),
    )
    @guarded(*_NOTHING)
    def list_top(data: Any) -> tuple[Any, ...]:
        choice = chosen(data)
        if choice is None:
            return _NOTHING
        shown = services.circuits.circuit(choice)
        return _tables(shown, services.circuits.top(choice), ("Largest", "Smallest"))

    @app.callback(
        *_outputs(ids.ROW_LARGEST),
        *_outputs(ids.ROW_SMALLEST),
        Output(ids.title(ids.ROW), "children"),
        Output(ids.explanation(ids.ROW), "children"),
        Output(ids.ROW_CAPTION, "children"),
        Output(ids.ROW_CHOICE, "label"),
        Output(ids.notice(ids.ROW), "children"),
        Input(ids.CIRCUIT, "data"),
        Input(ids.ROW_CHOICE, "value"),
    )
    @guarded(*_NOTHING, "One row", "", "", "Row")
    def list_row(data: Any, value: str | None) -> tuple[Any, ...]:
        choice = chosen(data)
        if choice is None:
            return (*_NOTHING, "One row", "", "", "Row")
        index = first_row(services, choice, value)
        shown, ends = services.circuits.circuit(choice), services.circuits.row(choice, index)
        these = words.WORDS[choice.kind]
        tables = _tables(shown, ends, (these.row_largest, these.row_smallest), rows=False)
        it = f"‹{shown.rows.shown(index)}›"
        explanation = f"The row of {it} as {words.row_role(shown)}: its entries with every {words.column_role(shown)}."
        caption = words.row_caption(shown, ends)
        return (*tables, these.row_title.format(it=it), explanation, caption, words.titled(words.row_role(shown)))

    @app.callback(
        *_outputs(ids.COLUMN_LARGEST),
        *_outputs(ids.COLUMN_SMALLEST),
        Output(ids.title(ids.COLUMN), "children"),
        Output(ids.explanation(ids.COLUMN), "children"),
        Output(ids.COLUMN_CAPTION, "children"),
        Output(ids.COLUMN_CHOICE, "label"),
        Output(ids.notice(ids.COLUMN), "children"),
        Input(ids.CIRCUIT, "data"),
        Input(ids.COLUMN_CHOICE, "value"),
    )
    @guarded(*_NOTHING, "One column", "", "", "Column")
    def list_column(data: Any, value: str | None) -> tuple[Any, ...]:
        choice = chosen(data)
        if choice is None:
            return (*_NOTHING, "One column", "", "", "Column")
        index = first_column(services, choice, value)
        shown, ends = services.circuits.circuit(choice), services.circuits.column(choice, index)
        these = words.WORDS[choice.kind]
        tables = _tables(shown, ends, (these.column_largest, these.column_smallest), columns=False)
        it = f"‹{shown.columns.shown(index)}›"
        role = words.column_role(shown)
        explanation = f"The column of {it} as {role}: its entries with every {words.row_role(shown)}."
        return (*tables, these.column_title.format(it=it), explanation, these.column_caption, words.titled(role))


def first_row(services: Services, choice: Choice, value: str | None) -> int:
    """The row that is chosen, or that of the largest entry."""
    return int(value) if value is not None else int(services.circuits.top(choice).largest.rows[0])


def first_column(services: Services, choice: Choice, value: str | None) -> int:
    """The column that is chosen, or that of the largest entry."""
    return int(value) if value is not None else int(services.circuits.top(choice).largest.columns[0])


def _outputs(table: str) -> list[Output]:
    return [Output(table, "columnDefs"), Output(table, "rowData"), Output(ids.heading(table), "children")]


def _tables(
    shown: Shown, ends: Ends, headings: tuple[str, str], *, rows: bool = True, columns: bool = True
) -> tuple[Any, ...]:
    """What `_outputs` of the two tables take."""
    defs = entry_columns(shown, rows=rows, columns=columns)
    largest = entry_rows(shown, ends.largest, ends.largest_relative)
    smallest = entry_rows(shown, ends.smallest, ends.smallest_relative)
    return defs, largest, headings[0], defs, smallest, headings[1]
