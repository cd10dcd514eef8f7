"""Exports of the Skip-trigrams page: the picture is made by the browser, files by files.py."""

from __future__ import annotations

from functools import partial
from typing import Any

from app.core.errors import RequestError
from app.core.files import File
from app.pages.trigrams import files
from app.pages.trigrams.callbacks import chosen, reading_of
from app.pages.trigrams.ids import ids
from app.pages.trigrams.path_callbacks import path_file
from app.pages.trigrams.rows import count
from app.pages.trigrams.service import Trigrams
from app.shell import ids as shell
from app.shell.app import App
from app.shell.props import stores
from app.shell.sharing import save_files

FILES = (
    shell.export(ids.ROWS, "csv"),
    shell.export(ids.FORCED, "csv"),
    shell.export(ids.KINDS, "csv"),
    shell.export(ids.KINDS, "json"),
    shell.export(ids.ALL_HEADS, "csv"),
)


def register(app: App, trigrams: Trigrams) -> None:
    """Callbacks of the export menus."""
    makers = {entry: partial(make_file, trigrams, entry) for entry in FILES}
    makers[shell.export(ids.PATH, "csv")] = lambda shown, path: path_file(trigrams, path)
    save_files(app, makers, stores(shown=ids.SHOWN, path=ids.ASKED_PATH))


def make_file(trigrams: Trigrams, entry: str, shown: Any, path: Any = None) -> File:
    """The file for an entry of an export menu."""
    choice = chosen((shown or {}).get("choice"))
    if choice is None:
        raise RequestError("Nothing is shown, so there is nothing to save: wait for the table, or choose another head.")
    reading = reading_of(shown["reading"])
    tables = {ids.ROWS: files.table_csv, ids.FORCED: files.forced_csv, ids.ALL_HEADS: files.heads_csv}
    if shell.exporting(entry) in tables:
        return tables[shell.exporting(entry)](trigrams, choice, reading)
    counts = count(trigrams, choice, reading)
    if entry == shell.export(ids.KINDS, "csv"):
        return files.kinds_csv(choice, counts)
    return files.kinds_json(choice, counts, trigrams.about(choice, reading))
