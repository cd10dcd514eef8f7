"""What the tab of the direct path asks of the server."""

from __future__ import annotations

from typing import Any

from app.core.errors import RequestError
from app.core.files import File
from app.pages.trigrams import files, words
from app.pages.trigrams.callbacks import reading_of
from app.pages.trigrams.ids import ids
from app.pages.trigrams.service import Trigrams
from app.pages.trigrams.service_direct import PathChoice, bigram_rows, direct_path
from app.pages.trigrams.tables import bigram_columns
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.props import props, stores
from app.shell.sharing import when_seen


def register(app: App, trigrams: Trigrams) -> None:
    """The tab's callback."""
    when_seen(app, ids.ASKED_PATH, (ids.PATH,))

    @guarded(
        app,
        panel=ids.PATH,
        inputs=stores(asked=shell.seen(ids.PATH)),
        parts=("rows", "columns", "caption"),
        output=props("disabled", own=ids.OWN),
        empty={"own": False},
    )
    def list_bigrams(asked: Any) -> Answer:
        choice = path_choice(asked)
        if choice is None:
            return None
        try:
            path = direct_path(trigrams, choice)
        except ValueError as error:
            raise RequestError(str(error)) from error
        about = "" if choice.reading is None else trigrams.text(choice.reading, choice.checkpoint).about
        return {
            "rows": bigram_rows(path),
            "columns": bigram_columns(counted=path.zero_layer is not None),
            "caption": words.direct_path(path, choice, about),
            "own": not path.own,
        }


def path_choice(asked: Any) -> PathChoice | None:
    """Which bigrams the browser asks for."""
    if not asked:
        return None
    return PathChoice(
        checkpoint=str(asked["checkpoint"]),
        k=int(asked["k"]),
        own=bool(asked["own"]),
        after=str(asked["after"] or ""),
        reading=reading_of(asked["reading"]),
    )


def path_file(trigrams: Trigrams, asked: Any) -> File:
    """The table as a file."""
    choice = path_choice(asked)
    if choice is None:
        raise RequestError("Nothing is shown, so there is nothing to save.")
    return files.bigrams_csv(choice, direct_path(trigrams, choice))
