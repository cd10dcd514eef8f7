"""Exports of the Circuits page: pictures are made by the browser, files by files.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from app.core.errors import RequestError
from app.core.files import File
from app.pages.circuits import figures, files
from app.pages.circuits.callbacks import chosen
from app.pages.circuits.ids import ids
from app.pages.circuits.line_callbacks import line
from app.pages.circuits.service import Choice, Circuits
from app.pages.circuits.structure_callbacks import threshold
from app.shell import ids as shell
from app.shell.app import App
from app.shell.props import stores, values
from app.shell.sharing import save_files

#: Panels that save a figure's data as JSON, and all that save a table as CSV.
_FIGURES = (ids.MAP, ids.OVERVIEW, ids.BLOCK, ids.EIGENVALUES, ids.COMPOSITION)
_TABLES = (*_FIGURES, ids.TOP, ids.ROW, ids.COLUMN, ids.SINGULAR, ids.COPYING)
_FILES = (*(shell.export(panel, "csv") for panel in _TABLES), *(shell.export(panel, "json") for panel in _FIGURES))


def register(app: App, circuits: Circuits) -> None:
    """Callbacks of the export menus."""
    state = stores(data=ids.SHOWN, block=ids.BLOCK_AT) | values(
        rows=ids.MAP_ROWS, columns=ids.MAP_COLUMNS, row=ids.ROW_CHOICE, column=ids.COLUMN_CHOICE,
        statistic=ids.OVERVIEW_STATISTIC, z=ids.COMPOSITION_Z,
    )  # fmt: skip
    save_files(app, {entry: partial(make_file, circuits, entry) for entry in _FILES}, state)


def make_file(
    circuits: Circuits,
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
    head = (int(data["layer"]), int(data["head"]))
    of_head: dict[str, Callable[[], File]] = {
        shell.export(ids.COMPOSITION, "csv"): lambda: files.composition_csv(circuits, data["checkpoint"], head),
        shell.export(ids.COMPOSITION, "json"): lambda: files.composition_json(
            circuits, data["checkpoint"], head, threshold(z)
        ),
        shell.export(ids.COPYING, "csv"): lambda: files.copying_csv(circuits, data["checkpoint"], head),
    }
    if entry in of_head:
        return of_head[entry]()
    choice = chosen(data)
    if choice is None:
        raise RequestError(str(data["problem"]))

    def entries(choice: Choice) -> figures.MapView:
        return figures.entries(circuits, choice, map(int, rows or []), map(int, columns or []))

    shown = circuits.circuit(choice)
    of_circuit: dict[str, Callable[[], File]] = {
        shell.export(ids.MAP, "csv"): lambda: files.map_csv(entries(choice)),
        shell.export(ids.MAP, "json"): lambda: files.map_json(entries(choice)),
        shell.export(ids.OVERVIEW, "csv"): lambda: files.overview_csv(figures.overview(circuits, choice, statistic)),
        shell.export(ids.OVERVIEW, "json"): lambda: files.overview_json(figures.overview(circuits, choice, statistic)),
        shell.export(ids.BLOCK, "csv"): lambda: files.block_csv(figures.block(circuits, choice, block)),
        shell.export(ids.BLOCK, "json"): lambda: files.map_json(figures.block(circuits, choice, block).map, "block"),
        shell.export(ids.TOP, "csv"): lambda: files.ends_csv(shown, circuits.top(choice), "top"),
        shell.export(ids.ROW, "csv"): lambda: files.ends_csv(shown, line(circuits, choice, "row", row), "row"),
        shell.export(ids.COLUMN, "csv"): lambda: files.ends_csv(
            shown, line(circuits, choice, "column", column), "column"
        ),
        shell.export(ids.EIGENVALUES, "csv"): lambda: files.eigenvalues_csv(circuits, choice),
        shell.export(ids.EIGENVALUES, "json"): lambda: files.eigenvalues_json(circuits, choice),
        shell.export(ids.SINGULAR, "csv"): lambda: files.singular_csv(circuits, choice),
    }
    return of_circuit[entry]()
