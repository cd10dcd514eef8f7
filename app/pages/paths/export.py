"""Exports of the Paths page: pictures are made by the browser, files by services/path_export.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dash import Dash, State

from app import ids
from app.pages.paths.callbacks import chosen
from app.pages.shared import save_files, save_pictures
from app.services import Services, path_export
from app.services.errors import RequestError
from app.services.export import File

_FIGURES = {ids.ORDERS: ids.ORDERS_GRAPH, ids.FLOW: ids.FLOW_GRAPH}
_FILES: dict[str, Callable[..., File]] = {
    ids.export(ids.ORDERS, "csv"): path_export.orders_csv,
    ids.export(ids.ORDERS, "json"): path_export.orders_json,
    ids.export(ids.FLOW, "csv"): path_export.flow_csv,
    ids.export(ids.FLOW, "json"): path_export.flow_json,
    ids.export(ids.TOP_PATHS, "csv"): path_export.top_csv,
    ids.export(ids.TOP_PATHS, "json"): path_export.top_json,
    ids.export(ids.PATH_HEADS, "csv"): path_export.heads_csv,
}
_WITHOUT: dict[str, Callable[..., File]] = {
    ids.export(ids.WITHOUT, "csv"): path_export.without_csv,
    ids.export(ids.WITHOUT, "json"): path_export.without_json,
}


def register(app: Dash, services: Services) -> None:
    """Callbacks of the export menus."""
    for panel, graph in _FIGURES.items():
        save_pictures(app, panel, graph)
    entries, states = (*_FILES, *_WITHOUT), (State(ids.PATHS, "data"), State(ids.PATHS_WITHOUT, "data"))
    save_files(app, entries, states, partial(make_file, services), download=ids.PATHS_DOWNLOAD, panel=ids.PATHS_PANEL)


def make_file(services: Services, entry: str, data: Any, what: str | None) -> File:
    """The file for an entry of an export menu."""
    question = chosen(data)
    if question is None:
        raise RequestError("Nothing is shown, so there is nothing to save: run a text first.")
    if entry in _FILES:
        return _FILES[entry](services.paths, question)
    if not what:
        raise RequestError("Nothing is taken away: choose a path or a head first.")
    return _WITHOUT[entry](services.paths, question, what)
