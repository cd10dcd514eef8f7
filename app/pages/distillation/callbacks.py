"""What the Distillation page asks of the server: which results, which head, one head on a text."""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, State, html, no_update

from aotlens.plots import Theme
from app import ids
from app.components.choices import head_buttons
from app.components.distillation_parts import error_chips
from app.components.graph import EMPTY, blank
from app.components.notices import problem
from app.pages.guard import guarded
from app.services import Services, views
from app.services import distillation_views as pictures
from app.services import distillation_words as words
from app.services.distillation import Shown
from app.services.errors import RequestError
from app.urlstate import DistillationState, HeadsState, format_heads


def register(app: Dash, services: Services) -> None:
    """The page's callbacks."""
    _register_choice(app, services)
    _register_figures(app, services)
    _register_head(app, services)


def _register_choice(app: Dash, services: Services) -> None:
    page = services.distillations

    @app.callback(
        Output(ids.DISTILLATION, "data"),
        Output(ids.DISTILLATION_WIDTH, "data"),
        Output(ids.DISTILLATION_WIDTH, "value"),
        Output(ids.DISTILLATION_MEANING, "children"),
        Output(ids.DISTILLATION_DATA, "children"),
        Output(ids.DISTILLATION_HEADS, "children"),
        Output(ids.notice(ids.DISTILLATION_PANEL), "children"),
        Input(ids.DISTILLATION_RESULTS, "value"),
        Input(ids.DISTILLATION_WIDTH, "value"),
        Input(ids.DISTILLATION_ACROSS, "value"),
        Input(ids.DISTILLATION_ASKED, "data"),
        State(ids.DISTILLATION, "data"),
    )
    def choose(results: list[str] | None, width: str, across: Any, asked: Any, before: Any) -> tuple[Any, ...]:
        asked = asked or {}
        state = DistillationState(
            results=tuple(results or ()), width=int(width) if width else None, across=across, of=asked.get("of"),
            head=(int(asked["layer"]), int(asked["head"])) if "head" in asked else None,
        )  # fmt: skip
        shown, problems = page.describe(state) if results or page.first() else (None, [words.NO_RESULT])
        notice = [problem(one, "Not everything can be shown") for one in problems] or None
        if shown is None:
            return None, no_update, no_update, "", [], [], notice
        data = shown.to_dict()
        widths = [{"value": str(n), "label": "linear" if n == 0 else str(n)} for n in page.widths(shown)]
        lines = [html.Li([html.B(key), words.data(page, key, shown.width)]) for key in shown.results]
        one_of_each = words.ONE_OF_EACH if len(shown.results) > 1 else ""
        same = before is not None and before["of"] == shown.of
        heads = no_update if same else head_buttons(*page.shape(shown.of))
        return no_update if data == before else data, widths, str(shown.width), one_of_each, lines, heads, notice


def _register_figures(app: Dash, services: Services) -> None:
    page = services.distillations
    figures = {
        ids.DISTILLED_GRID: (ids.DISTILLED_GRID_GRAPH, pictures.grid_figure),
        ids.DISTILLED_WIDTHS: (ids.DISTILLED_WIDTHS_GRAPH, pictures.widths_figure),
        ids.DISTILLED_CLOUD: (ids.DISTILLED_CLOUD_GRAPH, pictures.cloud_figure),
        ids.DISTILLED_CURVE: (ids.DISTILLED_CURVE_GRAPH, pictures.curve_figure),
    }
    for panel, (graph, make) in figures.items():
        _register_figure(app, services, panel, graph, make)

    @app.callback(
        Output(ids.DISTILLED_COSTS_GRAPH, "figure"),
        Output(ids.DISTILLED_COSTS_CAPTION, "children"),
        Output(ids.box(ids.DISTILLED_COSTS_GRAPH), "className"),
        Output(ids.notice(ids.DISTILLED_COSTS), "children"),
        Input(ids.DISTILLATION, "data"),
        Input(ids.THEME, "data"),
    )
    @guarded(EMPTY, [], "hidden")
    def draw_costs(data: Any, theme: Theme | None) -> tuple[Any, ...]:
        shown = chosen(data)
        figure = None if shown is None else pictures.costs_figure(page, shown, theme or "light")
        said = [] if shown is None else [html.Li(one) for one in words.costs(page, shown)]
        return figure or EMPTY, said, "hidden" if figure is None else "graph-distilled"

    @app.callback(
        Output(ids.DISTILLED_TABLE_GRID, "rowData"),
        Output(ids.notice(ids.DISTILLED_TABLE), "children"),
        Input(ids.DISTILLATION, "data"),
    )
    @guarded([])
    def list_heads(data: Any) -> tuple[Any, ...]:
        shown = chosen(data)
        return ([] if shown is None else pictures.table_rows(page, shown),)


def _register_figure(app: Dash, services: Services, panel: str, graph: str, make: Any) -> None:
    @app.callback(
        Output(graph, "figure"),
        Output(ids.notice(panel), "children"),
        Input(ids.DISTILLATION, "data"),
        Input(ids.THEME, "data"),
    )
    @guarded(EMPTY)
    def draw(data: Any, theme: Theme | None) -> tuple[Any, ...]:
        shown = chosen(data)
        figure = None if shown is None else make(services.distillations, shown, theme or "light")
        # Of these, only learning curves can be missing where there is a result.
        return (figure or (EMPTY if shown is None else blank(words.no_curve(shown), theme or "light")),)


def _register_head(app: Dash, services: Services) -> None:
    page = services.distillations

    @app.callback(
        Output(ids.title(ids.DISTILLED), "children"),
        Output(ids.DISTILLED_SAID, "children"),
        Output(ids.DISTILLED_CLASSES_GRAPH, "figure"),
        Output(ids.notice(ids.DISTILLED), "children"),
        Input(ids.DISTILLATION, "data"),
        Input(ids.THEME, "data"),
    )
    @guarded("One head", "", EMPTY)
    def describe_head(data: Any, theme: Theme | None) -> tuple[Any, ...]:
        shown = chosen(data)
        if shown is None:
            return "One head", "", EMPTY
        title = f"Head {shown.layer}.{shown.head} of {shown.of}"
        return title, words.head(page, shown), pictures.classes_figure(page, shown, theme or "light")

    @app.callback(
        Output(ids.DISTILLED_STRIP, "children"),
        Output(ids.DISTILLED_TEXT_SAID, "children"),
        Output(ids.DISTILLED_MAP_GRAPH, "figure"),
        Output(ids.DISTILLED_OPEN, "href"),
        Output(ids.notice(ids.DISTILLED_TEXT_PANEL), "children"),
        Input(ids.DISTILLATION, "data"),
        Input(ids.DISTILLATION_PROMPT, "data"),
        Input(ids.THEME, "data"),
    )
    @guarded([], "", EMPTY, no_update)
    def draw_text(data: Any, prompt: dict[str, Any], theme: Theme | None) -> tuple[Any, ...]:
        shown = chosen(data)
        if shown is None:
            return [], "", EMPTY, no_update
        errors, width, result = page.on_text(shown, prompt.get("text") or "", prompt.get("length"))
        tokens = (result.patterns.tokens.tolist(), result.patterns.str_tokens)
        chips = [] if errors is None else error_chips(*tokens, errors.relative.tolist(), errors.movement.tolist())
        figure = views.head_figure(result, shown.layer, shown.head, "attention", False, theme or "light")
        state = HeadsState(checkpoint=result.checkpoint, text=prompt.get("text"), head=(shown.layer, shown.head))
        return chips, words.on_text(shown, errors, width), figure, format_heads(state)


def chosen(data: Any) -> Shown | None:
    """What is shown; None where nothing is."""
    if not data:
        return None
    values = {name: data[name] for name in Shown.__dataclass_fields__}
    return Shown(**{**values, "results": tuple(values["results"])})


def require(data: Any) -> Shown:
    """What is shown. Raises RequestError where nothing is."""
    shown = chosen(data)
    if shown is None:
        raise RequestError("Nothing is shown, so there is nothing to save: choose a result first.")
    return shown


def result_options(services: Services, chosen: list[str]) -> list[dict[str, str]]:
    """Every result; and what an address names, so that it can be seen and taken away where it isn't there."""
    entries = services.distillations.list()
    missing = [key for key in chosen if key not in {entry.key for entry in entries}]
    known = [{"value": entry.key, "label": entry.label} for entry in entries]
    return [*known, *({"value": key, "label": f"{key} (not here)"} for key in missing)]
