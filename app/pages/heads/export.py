"""Exports of the Heads page: pictures are made by the browser, files by services/export.py."""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import ClientsideFunction, Dash, Input, State

from app import ids
from app.pages.heads.callbacks import ask, whole
from app.pages.shared import save_files, save_pictures
from app.services import Services, export
from app.services.errors import RequestError

_FILES = (
    ids.export(ids.MAP, "csv"),
    ids.export(ids.MAP, "json"),
    ids.export(ids.GRID, "npz"),
    ids.export(ids.NEXT, "csv"),
    ids.export(ids.NEXT, "json"),
)


def register(app: Dash, services: Services) -> None:
    """Callbacks of the export menus."""
    save_pictures(app, ids.MAP, ids.MAP_GRAPH)
    app.clientside_callback(
        ClientsideFunction("shell", "saveImage"),
        Input(ids.export(ids.GRID, "png"), "n_clicks"),
        State(ids.GRID_PICTURE, "src"),
        prevent_initial_call=True,
    )
    states = (
        State(ids.PROMPT, "data"),
        State(ids.HEAD, "data"),
        State(ids.POSITION, "data"),
        State(ids.VIEW, "value"),
        State(ids.HIDE_FIRST, "checked"),
    )
    save_files(app, _FILES, states, partial(make_file, services), download=ids.DOWNLOAD, panel=ids.TOKENS)


def make_file(
    services: Services,
    entry: Any,
    prompt: dict[str, Any],
    head: list[int] | None,
    position: int | None,
    view: Any,
    hide_first: bool,
) -> export.File:
    """The file for an entry of an export menu."""
    result = ask(services, prompt)
    if entry == ids.export(ids.GRID, "npz"):
        return export.all_heads_npz(result, services.settings.max_export_bytes)
    if entry in (ids.export(ids.NEXT, "csv"), ids.export(ids.NEXT, "json")):
        predictions = services.inference.predictions(prompt["checkpoint"], prompt["text"], position)
        make = export.predictions_csv if entry.endswith("csv") else export.predictions_json
        return make(result, predictions)
    if head is None:
        raise RequestError("No head is chosen: click one in the grid first.")
    draw = export.head_csv if entry == ids.export(ids.MAP, "csv") else export.head_json
    return draw(result, *whole(head), view, hide_first)
