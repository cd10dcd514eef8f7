"""Exports of the Skip-trigrams page: the picture is made by the browser, files by services/trigram_rows.py."""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import Dash, State

from app import ids
from app.pages.shared import save_files, save_pictures
from app.pages.trigrams.callbacks import chosen, reading_of
from app.pages.trigrams.views import about
from app.services import Services, trigram_rows
from app.services.errors import RequestError
from app.services.export import File

FILES = (
    ids.export(ids.TRIGRAM_ROWS, "csv"),
    ids.export(ids.TRIGRAM_BUGS, "csv"),
    ids.export(ids.TRIGRAM_KINDS, "csv"),
    ids.export(ids.TRIGRAM_KINDS, "json"),
)


def register(app: Dash, services: Services) -> None:
    """Callbacks of the export menus."""
    save_pictures(app, ids.TRIGRAM_KINDS, ids.TRIGRAM_KINDS_GRAPH)
    states = (State(ids.TRIGRAMS_FOUND, "data"),)
    save_files(app, FILES, states, partial(make_file, services), download=ids.TRIGRAMS_DOWNLOAD, panel=ids.TRIGRAM_ROWS)


def make_file(services: Services, entry: str, found: Any) -> File:
    """The file for an entry of an export menu."""
    choice = chosen((found or {}).get("choice"))
    if choice is None:
        raise RequestError("Nothing is shown, so there is nothing to save: wait for the table, or choose another head.")
    reading = reading_of(found["reading"])
    if entry == ids.export(ids.TRIGRAM_ROWS, "csv"):
        return trigram_rows.table_csv(services.trigrams, choice, reading)
    if entry == ids.export(ids.TRIGRAM_BUGS, "csv"):
        return trigram_rows.forced_csv(services.trigrams, choice, reading)
    counts = trigram_rows.count(services.trigrams, choice, reading)
    if entry == ids.export(ids.TRIGRAM_KINDS, "csv"):
        return trigram_rows.kinds_csv(choice, counts)
    return trigram_rows.kinds_json(choice, counts, about(services, choice, reading))
