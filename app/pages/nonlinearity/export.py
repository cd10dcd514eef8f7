"""Exports of the Non-linearity page: pictures are made by the browser, files by services/nonlinearity_export.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dash import Dash, State

from app import ids
from app.pages.nonlinearity.callbacks import chosen
from app.pages.shared import save_files, save_pictures
from app.services import Services, nonlinearity_export
from app.services.errors import RequestError
from app.services.export import File

_FIGURES = {
    ids.COMPILED_ERROR: ids.COMPILED_ERROR_GRAPH,
    ids.GATE: ids.GATE_GRAPH,
    ids.ONE_HEAD: ids.ONE_HEAD_PATTERN,
    ids.MASK: ids.MASK_GRAPH,
}
_FILES: dict[str, Callable[..., File]] = {
    ids.export(ids.COMPILED, "csv"): nonlinearity_export.layers_csv,
    ids.export(ids.COMPILED, "safetensors"): nonlinearity_export.model_safetensors,
    ids.export(ids.COMPILED, "ffn"): nonlinearity_export.ffn_safetensors,
    ids.export(ids.COMPILED, "zip"): nonlinearity_export.model_zip,
    ids.export(ids.COMPILED_ERROR, "csv"): nonlinearity_export.error_csv,
    ids.export(ids.COMPILED_HEADS, "csv"): nonlinearity_export.heads_csv,
}
_ONE_HEAD: dict[str, Callable[..., File]] = {
    ids.export(ids.ONE_HEAD, "csv"): nonlinearity_export.pattern_csv,
    ids.export(ids.SNIPPET, "py"): nonlinearity_export.snippet_py,
}


def register(app: Dash, services: Services) -> None:
    """Callbacks of the export menus."""
    for panel, graph in _FIGURES.items():
        save_pictures(app, panel, graph)
    states = (State(ids.NONLINEARITY, "data"), State(ids.ONE_HEAD_SHOWN, "data"))
    save_files(
        app, (*_FILES, *_ONE_HEAD), states, partial(make_file, services), download=ids.NONLINEARITY_DOWNLOAD,
        panel=ids.NONLINEARITY_PANEL,
    )  # fmt: skip


def make_file(services: Services, entry: str, data: Any, shown: Any) -> File:
    """The file for an entry of an export menu."""
    state = chosen(data)
    if state is None:
        raise RequestError("Nothing is compiled, so there is nothing to save: put right what is wrong above.")
    made = services.nonlinearity.compile(state)
    if entry in _FILES:
        return _FILES[entry](made)
    if not shown:
        raise RequestError("No head is shown: choose one first.")
    look = services.nonlinearity.look(made, shown["layer"], shown["head"], tuple(shown["x"]))
    return _ONE_HEAD[entry](made, look)
