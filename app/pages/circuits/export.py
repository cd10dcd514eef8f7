"""Exports of the Circuits page: pictures are made by the browser, files by services/circuit_export.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dash import Dash, State

from app import ids
from app.pages.circuits.callbacks import chosen
from app.pages.circuits.lines import first_column, first_row
from app.pages.circuits.structure import threshold
from app.pages.shared import save_files, save_pictures
from app.services import Services, circuit_export, circuit_views
from app.services.circuits import Choice
from app.services.errors import RequestError
from app.services.export import File

_FIGURES = {
    ids.ENTRIES: ids.ENTRIES_GRAPH,
    ids.OVERVIEW: ids.OVERVIEW_GRAPH,
    ids.BLOCK_PANEL: ids.BLOCK_GRAPH,
    ids.EIGENVALUES: ids.EIGENVALUES_GRAPH,
    ids.COMPOSITION: ids.COMPOSITION_GRAPH,
}

#: Panels that save a table as CSV, and those that save a figure's data as JSON.
_TABLES = (*_FIGURES, ids.TOP, ids.ROW, ids.COLUMN, ids.SINGULAR, ids.COPYING)
_FILES = (*(ids.export(panel, "csv") for panel in _TABLES), *(ids.export(panel, "json") for panel in _FIGURES))


def register(app: Dash, services: Services) -> None:
    """Callbacks of the export menus."""
    for panel, graph in _FIGURES.items():
        save_pictures(app, panel, graph)
    states = (
        State(ids.CIRCUIT, "data"),
        State(ids.ENTRIES_ROWS, "value"),
        State(ids.ENTRIES_COLUMNS, "value"),
        State(ids.ROW_CHOICE, "value"),
        State(ids.COLUMN_CHOICE, "value"),
        State(ids.OVERVIEW_STATISTIC, "value"),
        State(ids.BLOCK, "data"),
        State(ids.COMPOSITION_Z, "value"),
    )
    save_files(
        app, _FILES, states, partial(make_file, services), download=ids.CIRCUITS_DOWNLOAD, panel=ids.CIRCUIT_PANEL
    )


def make_file(
    services: Services,
    entry: str,
    data: Any,
    rows: list[str] | None = None,
    columns: list[str] | None = None,
    row: str | None = None,
    column: str | None = None,
    statistic: Any = "extreme",
    block: list[int] | None = None,
    z: Any = None,
) -> File:
    """The file for an entry of an export menu."""
    if not data:
        raise RequestError("Nothing is shown, so there is nothing to save: choose a checkpoint first.")
    circuits = services.circuits
    head = (int(data["layer"]), int(data["head"]))
    of_head: dict[str, Callable[[], File]] = {
        ids.export(ids.COMPOSITION, "csv"): lambda: circuit_export.composition_csv(circuits, data["checkpoint"], head),
        ids.export(ids.COMPOSITION, "json"): lambda: circuit_export.composition_json(
            circuits, data["checkpoint"], head, threshold(z)
        ),
        ids.export(ids.COPYING, "csv"): lambda: circuit_export.copying_csv(circuits, data["checkpoint"], head),
    }
    if entry in of_head:
        return of_head[entry]()
    choice = chosen(data)
    if choice is None:
        raise RequestError(str(data["problem"]))

    def entries(choice: Choice) -> circuit_views.MapView:
        return circuit_views.entries(circuits, choice, map(int, rows or []), map(int, columns or []))

    shown = circuits.circuit(choice)
    of_circuit: dict[str, Callable[[], File]] = {
        ids.export(ids.ENTRIES, "csv"): lambda: circuit_export.map_csv(entries(choice)),
        ids.export(ids.ENTRIES, "json"): lambda: circuit_export.map_json(entries(choice)),
        ids.export(ids.OVERVIEW, "csv"): lambda: circuit_export.overview_csv(
            circuit_views.overview(circuits, choice, statistic)
        ),
        ids.export(ids.OVERVIEW, "json"): lambda: circuit_export.overview_json(
            circuit_views.overview(circuits, choice, statistic)
        ),
        ids.export(ids.BLOCK_PANEL, "csv"): lambda: circuit_export.block_csv(
            circuit_views.block(circuits, choice, block)
        ),
        ids.export(ids.BLOCK_PANEL, "json"): lambda: circuit_export.map_json(
            circuit_views.block(circuits, choice, block).map, "block"
        ),
        ids.export(ids.TOP, "csv"): lambda: circuit_export.ends_csv(shown, circuits.top(choice), "top"),
        ids.export(ids.ROW, "csv"): lambda: circuit_export.ends_csv(
            shown, circuits.row(choice, first_row(services, choice, row)), "row"
        ),
        ids.export(ids.COLUMN, "csv"): lambda: circuit_export.ends_csv(
            shown, circuits.column(choice, first_column(services, choice, column)), "column"
        ),
        ids.export(ids.EIGENVALUES, "csv"): lambda: circuit_export.eigenvalues_csv(circuits, choice),
        ids.export(ids.EIGENVALUES, "json"): lambda: circuit_export.eigenvalues_json(circuits, choice),
        ids.export(ids.SINGULAR, "csv"): lambda: circuit_export.singular_csv(circuits, choice),
    }
    return of_circuit[entry]()
