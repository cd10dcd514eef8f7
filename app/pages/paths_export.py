"""Exports of the Paths page: pictures are made by the browser, files by services/path_export.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dash import Dash, Input, Output, State, ctx, dcc, no_update

from app import ids
from app.pages.guard import guarded
from app.pages.paths_callbacks import chosen
from app.pages.shared import save_pictures
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

    @app.callback(
        Output(ids.PATHS_DOWNLOAD, "data"),
        Output(ids.notice(ids.PATHS_PANEL), "children", allow_duplicate=True),
        *(Input(entry, "n_clicks") for entry in (*_FILES, *_WITHOUT)),
        State(ids.PATHS, "data"),
        State(ids.PATHS_WITHOUT, "data"),
        prevent_initial_call=True,
    )
    @guarded(no_update)
    def save(*args: Any) -> tuple[Any, ...]:
        file = make_file(services, str(ctx.triggered_id), *args[-2:])
        return (dcc.send_bytes(file.content, file.name, type=file.mime),)


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
