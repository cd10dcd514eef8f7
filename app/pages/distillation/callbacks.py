"""Callbacks of the Distillation page: the results and the head that are shown, one head on a text."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
from dash import html, no_update

from aotlens.views.distillation import HEADS, DistillationParameters
from app.core import Core
from app.core.errors import RequestError
from app.core.files import File, csv_file
from app.pages.distillation import captions
from app.pages.distillation.address import DistillationState
from app.pages.distillation.ids import VIEWS, ids
from app.pages.distillation.service import Distillations
from app.pages.distillation.tables import error_chips, head_columns, head_rows
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.choices import head_buttons
from app.shell.notices import problem
from app.shell.props import children, props, stores, values
from app.shell.sharing import save_files
from app.shell.views import show_views, tables

#: The fields that the page says that it shows, beside the results.
_SHOWN = ("width", "across", "of", "layer", "head")


def register(app: App, core: Core, service: Distillations) -> None:
    """Register the page's callbacks."""
    _register_choice(app, service)
    _register_table(app, service)
    _register_head(app, core, service)
    show_views(app, service.workshop, VIEWS, service.values, shown=ids.SHOWN, keys=ids.DRAWN, inputs={})
    files = {**tables(service.workshop, VIEWS, service.values), shell.export(ids.ALL, "csv"): heads_csv(service)}
    save_files(app, files, stores(shown=ids.SHOWN))
    save_files(
        app, {shell.export(ids.ON_TEXT, "csv"): partial(text_csv, service)},
        stores(shown=ids.SHOWN, prompt=ids.PROMPT),
    )  # fmt: skip


def _register_choice(app: App, service: Distillations) -> None:
    @guarded(
        app,
        panel=ids.PANEL,
        inputs=values(results=ids.RESULTS, width=ids.WIDTH, across=ids.ACROSS) | stores(asked=ids.ASKED),
        state=stores(before=ids.SHOWN),
        output=stores(shown=ids.SHOWN, widths=ids.WIDTH, targets=ids.ACROSS, heads=shell.drawn(ids.HEADS))
        | values(width=ids.WIDTH)
        | children(meaning=ids.MEANING, data=ids.DATA),
        empty={"widths": no_update, "targets": no_update},
    )
    def choose(results: list[str] | None, width: str, across: Any, asked: Any, before: Any) -> Answer:
        asked = asked or {}
        state = DistillationState(
            results=tuple(results or ()), width=int(width) if width else None, across=across, of=asked.get("of"),
            head=None if asked.get("head") is None else (int(asked["layer"] or 0), int(asked["head"])),
        )  # fmt: skip
        view, problems = service.describe(state) if results or service.first() else (None, [captions.NO_RESULT])
        notice = [problem(each, "Not everything can be shown") for each in problems] or None
        if view is None:
            return {"shown": None, "meaning": None, "data": None, "heads": None, "notice": notice}
        same_model = before is not None and before["of"] == view.of
        return {
            "shown": {**{name: getattr(view, name) for name in _SHOWN}, "results": list(view.results)},
            "widths": [{"value": str(n), "label": "linear" if n == 0 else str(n)} for n in service.widths(view)],
            "width": str(view.width),
            "targets": captions.across_options(),
            "meaning": captions.answer(service, view),
            "data": [html.Li([html.B(key), captions.data(service, key, view.width)]) for key in view.results],
            "heads": no_update if same_model else head_buttons(*service.shape(view.of)),
            "notice": notice,
        }


def _register_table(app: App, service: Distillations) -> None:
    @guarded(
        app,
        panel=ids.ALL,
        inputs=stores(shown=shell.seen(ids.ALL)),
        state=props("columnDefs", before=shell.table(ids.ALL)),  # what is still the same is not told again
        parts=("rows", "columns"),
        reads={"shown": service.read},
        empty={"columns": no_update},
    )
    def list_heads(shown: DistillationParameters, **_: Any) -> Answer:
        columns = head_columns(captions.motif_columns(service, shown))
        return {"rows": head_rows(service.workshop.result(HEADS, shown).to_frame()), "columns": columns}


def _register_head(app: App, core: Core, service: Distillations) -> None:
    @guarded(
        app,
        panel=ids.ON_TEXT,
        reads={"shown": service.read},
        inputs=stores(shown=shell.seen(ids.ON_TEXT), prompt=ids.PROMPT),
        parts=("caption",),
        output=stores(strip=shell.drawn(ids.STRIP), mapped=ids.MAPPED) | props("href", link=ids.OPEN),
    )
    def draw_text(shown: DistillationParameters, prompt: dict[str, Any]) -> Answer:
        text = prompt.get("text") or ""
        errors, width, result = service.on_text(shown, text, prompt.get("length"))
        tokens, head = (result.patterns.tokens.tolist(), result.patterns.str_tokens), (shown.layer, shown.head)
        chips = [] if errors is None else error_chips(*tokens, errors.relative.tolist(), errors.movement.tolist())
        return {
            "strip": chips,
            "caption": captions.on_text(shown, errors, width),
            "mapped": {"checkpoint": result.checkpoint, "text": text, "head": head},
            "link": core.links.to("heads", checkpoint=result.checkpoint, text=text, head=head),
        }


def heads_csv(service: Distillations) -> Callable[..., File]:
    """Return the file of the table: what the map of errors has."""
    return tables(service.workshop, {ids.ALL: HEADS}, service.values)[shell.export(ids.ALL, "csv")]


def text_csv(service: Distillations, shown: Any, prompt: dict[str, Any] | None) -> File:
    """Return one row a token: where the FFN fails."""
    read = service.read(shown)
    if read is None:
        raise RequestError("Nothing is shown, so there is nothing to save: choose a result first.")
    errors, width, result = service.on_text(read, (prompt or {}).get("text") or "")
    if errors is None:
        raise RequestError("This result has kept no FFN, so there are no errors on a text to save.")
    patterns = result.patterns
    tokens = {"position": range(patterns.n_pos), "token_id": patterns.tokens.tolist(), "token": patterns.str_tokens}
    frame = pd.DataFrame({**tokens, "error": errors.relative, "movement": errors.movement})
    return csv_file(f"{read.file_of_head(f'text-{width}-units')}.csv", frame)


def result_options(service: Distillations, chosen: list[str]) -> list[dict[str, str]]:
    """Return every result; and what an address names, so that it can be seen and taken away where it isn't there."""
    entries = service.list()
    missing = [key for key in chosen if key not in {entry.key for entry in entries}]
    known = [{"value": entry.key, "label": entry.label} for entry in entries]
    return [*known, *({"value": key, "label": f"{key} (not here)"} for key in missing)]
