"""Exports of the Skip-trigrams page: the picture is made by the browser, files by services/trigram_rows.py."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, State, ctx, dcc, no_update

from app import ids
from app.pages.guard import guarded
from app.pages.shared import save_pictures
from app.pages.trigrams_callbacks import chosen, reading_of
from app.pages.trigrams_views import about
from app.services import Services, trigram_rows
from app.services.errors import RequestError
from app.services.export import File

FILES = (
    ids.export(ids.TRIGRAM_ROWS, "csv"),
    ids.export(ids.TRIGRAM_KINDS, "csv"),
    ids.export(ids.TRIGRAM_KINDS, "json"),
)


def register(app: Dash, services: Services) -> None:
    """Callbacks of the export menus."""
    save_pictures(app, ids.TRIGRAM_KINDS, ids.TRIGRAM_KINDS_GRAPH)

    @app.callback(
        Output(ids.TRIGRAMS_DOWNLOAD, "data"),
        Output(ids.notice(ids.TRIGRAM_ROWS), "children", allow_duplicate=True),
        *(Input(entry, "n_clicks") for entry in FILES),
        State(ids.TRIGRAMS_FOUND, "data"),
        prevent_initial_call=True,
    )
    @guarded(no_update)
    def save(*args: Any) -> tuple[Any, ...]:
        file = make_file(services, str(ctx.triggered_id), args[-1])
        return (dcc.send_bytes(file.content, file.name, type=file.mime),)


def make_file(services: Services, entry: str, found: Any) -> File:
    """The file for an entry of an export menu."""
    choice = chosen((found or {}).get("choice"))
    if choice is None:
        raise RequestError("Nothing is shown, so there is nothing to save: wait for the table, or choose another head.")
    reading = reading_of(found["reading"])
    if entry == ids.export(ids.TRIGRAM_ROWS, "csv"):
        return trigram_rows.table_csv(services.trigrams, choice, reading)
    counts = trigram_rows.count(services.trigrams, choice, reading)
    if entry == ids.export(ids.TRIGRAM_KINDS, "csv"):
        return trigram_rows.kinds_csv(choice, counts)
    return trigram_rows.kinds_json(choice, counts, about(services, choice, reading))
