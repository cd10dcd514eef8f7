"""Exports of the Distillation page: pictures are made by the browser, files by services/distillation_export.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dash import Dash, State

from app import ids
from app.pages.distillation.callbacks import require
from app.pages.shared import save_files, save_pictures
from app.services import Services, distillation_export
from app.services.export import File

_FIGURES = {
    ids.DISTILLED_GRID: ids.DISTILLED_GRID_GRAPH,
    ids.DISTILLED_WIDTHS: ids.DISTILLED_WIDTHS_GRAPH,
    ids.DISTILLED_CLOUD: ids.DISTILLED_CLOUD_GRAPH,
    ids.DISTILLED_COSTS: ids.DISTILLED_COSTS_GRAPH,
    ids.DISTILLED: ids.DISTILLED_CLASSES_GRAPH,
    ids.DISTILLED_CURVE: ids.DISTILLED_CURVE_GRAPH,
    ids.DISTILLED_TEXT_PANEL: ids.DISTILLED_MAP_GRAPH,
}
_TEXT = ids.export(ids.DISTILLED_TEXT_PANEL, "csv")
FILES: dict[str, Callable[..., File]] = {
    ids.export(ids.DISTILLED_GRID, "csv"): distillation_export.heads_csv,
    ids.export(ids.DISTILLED_TABLE, "csv"): distillation_export.heads_csv,
    ids.export(ids.DISTILLED_WIDTHS, "csv"): distillation_export.widths_csv,
    ids.export(ids.DISTILLED_COSTS, "csv"): distillation_export.costs_csv,
    ids.export(ids.DISTILLED, "csv"): distillation_export.classes_csv,
    ids.export(ids.DISTILLED_CURVE, "csv"): distillation_export.curve_csv,
    _TEXT: distillation_export.text_csv,
}


def register(app: Dash, services: Services) -> None:
    """Callbacks of the export menus."""
    for panel, graph in _FIGURES.items():
        save_pictures(app, panel, graph)
    states = (State(ids.DISTILLATION, "data"), State(ids.DISTILLATION_PROMPT, "data"))
    save_files(
        app, tuple(FILES), states, partial(make_file, services), download=ids.DISTILLATION_DOWNLOAD,
        panel=ids.DISTILLATION_PANEL,
    )  # fmt: skip


def make_file(services: Services, entry: str, data: Any, prompt: dict[str, Any] | None) -> File:
    """The file for an entry of an export menu."""
    shown = require(data)
    if entry == _TEXT:
        return FILES[entry](services.distillations, shown, (prompt or {}).get("text") or "")
    return FILES[entry](services.distillations, shown)
