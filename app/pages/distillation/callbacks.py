"""What the Distillation page asks of the server: which results, which head, one head on a text."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dash import html, no_update

from aotlens.plots import Theme
from app.core import Core, head_maps
from app.core.errors import RequestError
from app.core.files import File
from app.core.inference import PromptResult
from app.pages.distillation import figures, files, words
from app.pages.distillation.address import DistillationState
from app.pages.distillation.ids import ids
from app.pages.distillation.service import Distillations, Shown
from app.pages.distillation.tables import error_chips, head_columns
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.choices import head_buttons
from app.shell.graph import EMPTY, blank
from app.shell.head_map import tell_lines
from app.shell.notices import problem
from app.shell.props import children, props, stores, values
from app.shell.sharing import save_files


def register(app: App, core: Core, service: Distillations) -> None:
    """The page's callbacks."""
    _register_choice(app, service)
    _register_panels(app, service)
    _register_head(app, core, service)
    save_files(
        app,
        {entry: partial(make_file, service, entry) for entry in (*_FILES, _TEXT)},
        stores(shown=ids.SHOWN, prompt=ids.PROMPT),
    )


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
        shown, problems = service.describe(state) if results or service.first() else (None, [words.NO_RESULT])
        notice = [problem(one, "Not everything can be shown") for one in problems] or None
        if shown is None:
            return {"shown": None, "meaning": None, "data": None, "heads": None, "notice": notice}
        same_model = before is not None and before["of"] == shown.of
        return {
            "shown": shown.to_dict(),
            "widths": [{"value": str(n), "label": "linear" if n == 0 else str(n)} for n in service.widths(shown)],
            "width": str(shown.width),
            "targets": words.across_options(),
            "meaning": words.ONE_OF_EACH if len(shown.results) > 1 else None,
            "data": [html.Li([html.B(key), words.data(service, key, shown.width)]) for key in shown.results],
            "heads": no_update if same_model else head_buttons(*service.shape(shown.of)),
            "notice": notice,
        }


def _register_panels(app: App, service: Distillations) -> None:
    of_shown = partial(guarded, app, reads={"shown": chosen})
    drawn = {
        ids.GRID: figures.grid_figure,
        ids.WIDTHS: figures.widths_figure,
        ids.CLOUD: figures.cloud_figure,
        ids.CURVE: figures.curve_figure,
    }
    for panel, make in drawn.items():

        @of_shown(panel=panel, inputs=stores(shown=shell.seen(panel), theme=shell.THEME), parts=("figure",))
        def draw(shown: Shown, theme: Theme, make: Any = make) -> Answer:
            # Of these, only learning curves can be missing where there is a result.
            return {"figure": make(service, shown, theme) or blank(words.no_curve(shown), theme)}

    @of_shown(
        panel=ids.COSTS,
        inputs=stores(shown=shell.seen(ids.COSTS), theme=shell.THEME),
        parts=("figure", "caption"),
        output=props("className", box=shell.box(shell.graph(ids.COSTS))),
        empty={"box": "hidden"},
    )
    def draw_costs(shown: Shown, theme: Theme) -> Answer:
        figure = figures.costs_figure(service, shown, theme)
        return {
            "figure": figure or EMPTY,
            "caption": [html.Li(line) for line in words.costs(service, shown)],
            "box": "hidden" if figure is None else "graph-distilled",
        }

    @of_shown(
        panel=ids.ALL,
        inputs=stores(shown=shell.seen(ids.ALL)),
        state=props("columnDefs", before=shell.table(ids.ALL)),  # what is still the same is not told again
        parts=("rows", "columns"),
        empty={"columns": no_update},
    )
    def list_heads(shown: Shown, **_: Any) -> Answer:
        columns = head_columns(words.motif_columns(service, shown))
        return {"rows": figures.table_rows(service, shown), "columns": columns}


def _register_head(app: App, core: Core, service: Distillations) -> None:
    of_shown = partial(guarded, app, reads={"shown": chosen})

    def result_of(shown: Any, prompt: dict[str, Any]) -> PromptResult:
        if shown is None:
            raise RequestError("No distillation is chosen here: choose one first.")
        checkpoint = service.record(shown["of"]).checkpoint
        return core.inference.analyse(checkpoint, prompt.get("text") or "", length=prompt.get("length"))

    tell_lines(app, ids.ON_TEXT, result_of, stores(shown=ids.SHOWN, prompt=ids.PROMPT))

    @of_shown(
        panel=ids.ONE,
        inputs=stores(shown=shell.seen(ids.ONE), theme=shell.THEME),
        parts=("title", "caption", "figure"),
        empty={"title": "One head"},
    )
    def describe_head(shown: Shown, theme: Theme) -> Answer:
        return {
            "title": f"Head {shown.layer}.{shown.head} of {shown.of}",
            "caption": words.head(service, shown),
            "figure": figures.classes_figure(service, shown, theme),
        }

    @of_shown(
        panel=ids.ON_TEXT,
        inputs=stores(shown=shell.seen(ids.ON_TEXT), prompt=ids.PROMPT, theme=shell.THEME),
        parts=("caption", "figure"),
        output=stores(strip=shell.drawn(ids.STRIP)) | props("href", link=ids.OPEN),
    )
    def draw_text(shown: Shown, prompt: dict[str, Any], theme: Theme) -> Answer:
        errors, width, result = service.on_text(shown, prompt.get("text") or "", prompt.get("length"))
        tokens, head = (result.patterns.tokens.tolist(), result.patterns.str_tokens), (shown.layer, shown.head)
        chips = [] if errors is None else error_chips(*tokens, errors.relative.tolist(), errors.movement.tolist())
        return {
            "strip": chips,
            "caption": words.on_text(shown, errors, width),
            "figure": head_maps.head_figure(result, *head, "attention", False, theme, levels=True),
            "link": core.links.to("heads", checkpoint=result.checkpoint, text=prompt.get("text"), head=head),
        }


_FILES: dict[str, Callable[..., File]] = {
    shell.export(ids.GRID, "csv"): files.heads_csv,
    shell.export(ids.ALL, "csv"): files.heads_csv,
    shell.export(ids.WIDTHS, "csv"): files.widths_csv,
    shell.export(ids.COSTS, "csv"): files.costs_csv,
    shell.export(ids.ONE, "csv"): files.classes_csv,
    shell.export(ids.CURVE, "csv"): files.curve_csv,
}
_TEXT = shell.export(ids.ON_TEXT, "csv")


def make_file(service: Distillations, entry: str, shown: Any, prompt: dict[str, Any] | None) -> File:
    """The file for an entry of an export menu."""
    read = chosen(shown)
    if read is None:
        raise RequestError("Nothing is shown, so there is nothing to save: choose a result first.")
    if entry == _TEXT:
        return files.text_csv(service, read, (prompt or {}).get("text") or "")
    return _FILES[entry](service, read)


def chosen(shown: Any) -> Shown | None:
    """What is shown; None where nothing is."""
    if not shown:
        return None
    fields = {name: shown[name] for name in Shown.__dataclass_fields__}
    return Shown(**{**fields, "results": tuple(fields["results"])})


def result_options(service: Distillations, chosen: list[str]) -> list[dict[str, str]]:
    """Every result; and what an address names, so that it can be seen and taken away where it isn't there."""
    entries = service.list()
    missing = [key for key in chosen if key not in {entry.key for entry in entries}]
    known = [{"value": entry.key, "label": entry.label} for entry in entries]
    return [*known, *({"value": key, "label": f"{key} (not here)"} for key in missing)]
