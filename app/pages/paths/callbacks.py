"""What the Paths page asks of the server: which logit, its largest paths, their sums, and the model without one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, no_update

from aotlens.plots import Theme
from app import ids
from app.components.choices import options
from app.components.graph import EMPTY
from app.components.notices import empty
from app.components.path_tables import effect_tables, head_columns, path_table, source_strip
from app.pages.guard import guarded
from app.services import Services, path_views
from app.services import path_words as words
from app.services.paths import Expanded, Question
from app.urlstate import FIRST_K, MAX_K, Ranking

_NOTHING_TAKEN = "Click “without” beside a path, or a head in the table of heads."


def register(app: Dash, services: Services) -> None:
    """The page's callbacks."""
    _register_choice(app, services)
    _register_search(app, services)
    paths = services.paths

    @app.callback(
        Output(ids.TOP_PATHS_TABLE, "children"),
        Output(ids.TOP_PATHS_CAPTION, "children"),
        Output(ids.title(ids.TOP_PATHS), "children"),
        Output(ids.notice(ids.TOP_PATHS), "children"),
        Input(ids.PATHS, "data"),
    )
    @guarded(None, "", "Largest paths")
    def list_paths(data: Any) -> tuple[Any, ...]:
        question = chosen(data)
        if question is None:
            return None, "", "Largest paths"
        table = path_table(path_views.top_rows(paths, question), words.quantity(question))
        return table, words.proof(paths.top(question), question), words.listed(question)

    @app.callback(
        Output(ids.ORDERS_GRAPH, "figure"),
        Output(ids.ORDERS_CAPTION, "children"),
        Output(ids.notice(ids.ORDERS), "children"),
        Input(ids.PATHS, "data"),
        Input(ids.THEME, "data"),
    )
    @guarded(EMPTY, "")
    def draw_orders(data: Any, theme: Theme | None) -> tuple[Any, ...]:
        question = chosen(data)
        if question is None:
            return EMPTY, ""
        caption = words.orders(paths.asked(question), paths.orders(question)[1])
        return path_views.orders_figure(paths, question, theme or "light"), caption

    @app.callback(
        Output(ids.FLOW_GRAPH, "figure"),
        Output(ids.FLOW_CAPTION, "children"),
        Output(ids.notice(ids.FLOW), "children"),
        Input(ids.PATHS, "data"),
        Input(ids.THEME, "data"),
    )
    @guarded(EMPTY, "")
    def draw_flow(data: Any, theme: Theme | None) -> tuple[Any, ...]:
        question = chosen(data)
        if question is None:
            return EMPTY, ""
        return path_views.flow_figure(paths, question, theme or "light"), words.flow(paths.flow(question))

    @app.callback(
        Output(ids.PATH_HEADS_TABLE, "columnDefs"),
        Output(ids.PATH_HEADS_TABLE, "rowData"),
        Output(ids.notice(ids.PATH_HEADS), "children"),
        Input(ids.PATHS, "data"),
    )
    @guarded([], [])
    def list_heads(data: Any) -> tuple[Any, ...]:
        question = chosen(data)
        if question is None:
            return [], []
        return head_columns(words.quantity(question)), path_views.head_rows(paths, question)

    @app.callback(
        Output(ids.WITHOUT_BODY, "children"),
        Output(ids.title(ids.WITHOUT), "children"),
        Output(ids.notice(ids.WITHOUT), "children"),
        Input(ids.PATHS, "data"),
        Input(ids.PATHS_WITHOUT, "data"),
    )
    @guarded(None, "Without a head or a path")
    def take_away(data: Any, what: str | None) -> tuple[Any, ...]:
        question = chosen(data)
        if question is None or not what:
            return empty(_NOTHING_TAKEN), "Without a head or a path"
        effect = paths.without(question, what)
        rows = words.rows(paths, paths.asked(question), question, effect)
        title = f"Without {effect.name}" if effect.is_head else f"Without the path {effect.name}"
        return effect_tables(effect, rows), title


def _register_choice(app: Dash, services: Services) -> None:
    @app.callback(
        Output(ids.PATHS, "data"),
        Output(ids.PATHS_POSITION, "data"),
        Output(ids.PATHS_STRIP, "children"),
        Output(ids.PATHS_TARGET, "data"),
        Output(ids.PATHS_TARGET, "value"),
        Output(ids.PATHS_VERSUS, "data"),
        Output(ids.PATHS_VERSUS, "value"),
        Output(ids.PATHS_THROUGH, "data"),
        Output(ids.PATHS_THROUGH, "value"),
        Output(ids.PATHS_COUNT, "children"),
        Output(ids.PATHS_SUM, "children"),
        Output(ids.PATHS_NOTES, "children"),
        Output(ids.notice(ids.PATHS_PANEL), "children"),
        Input(ids.PATHS_PROMPT, "data"),
        Input(ids.PATHS_POSITION, "data"),
        Input(ids.PATHS_TARGET, "value"),
        Input(ids.PATHS_VERSUS, "value"),
        Input(ids.PATHS_BY, "value"),
        Input(ids.PATHS_K, "value"),
        Input(ids.PATHS_THROUGH, "value"),
        State(ids.PATHS_ASKED, "data"),
        State(ids.PATHS, "data"),
    )
    @guarded(None, no_update, [], [], None, [], None, [], no_update, "", "", None)
    def choose(
        prompt: Any, position: Any, target: Any, versus: Any, by: Ranking, k: Any, through: Any, asked: Any, before: Any
    ) -> tuple[Any, ...]:
        paths = services.paths
        expanded = paths.expand(prompt.get("checkpoint"), prompt.get("text") or "", length=prompt.get("length"))
        ids_now = list(expanded.expansion.tokens)
        # By values, not by what Dash says has triggered this: a store that is new says so, too.
        if before is None:
            named = all(prompt.get(key) == asked[key] for key in ("checkpoint", "text"))
            position, target, versus = (position, asked["target"], asked["versus"]) if named else (None, None, None)
        elif before["tokens"] != ids_now:
            position, target, versus = None, None, None  # a position means something in one text only
        elif before["key"] != expanded.key or position not in (None, before["position"]):
            target, versus = None, None  # another place, another first choice
        question = paths.question(expanded, _whole(position), _whole(target), _whole(versus), by, _k(k), through)
        values, bias = paths.sources(question)
        strip = source_strip(expanded.expansion.str_tokens, values, question.position, words.quantity(question))
        labels = paths.labels(expanded.checkpoint)
        offered = paths.choices(expanded, question.position)
        others = [token for token in offered if token != question.target]
        return (
            {**question.to_dict(), "key": expanded.key, "tokens": ids_now},
            question.position,
            strip,
            options(labels, [question.target, *offered]),
            str(question.target),
            options(labels, [*([] if question.versus is None else [question.versus]), *others]),
            None if question.versus is None else str(question.versus),
            paths.head_names(expanded),
            question.through,
            f"{expanded.expansion.n_pos} of at most {expanded.limit} tokens",
            _sum(services, expanded, question, bias),
            [dmc.Text(note, size="sm", className="exact") for note in expanded.notes],
        )


def _register_search(app: Dash, services: Services) -> None:
    for id in (ids.PATHS_TARGET, ids.PATHS_VERSUS):

        @app.callback(
            Output(id, "data", allow_duplicate=True),
            Input(id, "searchValue"),
            State(id, "value"),
            State(ids.PATHS, "data"),
            prevent_initial_call=True,
        )
        def search(wanted: str | None, value: str | None, data: Any) -> Any:
            question = chosen(data)
            if question is None:
                return no_update
            labels = services.paths.labels(question.checkpoint)
            kept = [] if value is None else [int(value)]
            # A chosen one's text stands in the box; whoever opens the list then wants to see others.
            if not wanted or (kept and wanted == labels.shown(kept[0])):
                found = services.paths.choices(services.paths.asked(question), question.position)
            else:
                found = labels.search(wanted, services.settings.n_options)
            return options(labels, [*found, *kept])


def chosen(data: Any) -> Question | None:
    """The logit that is shown; None when there is none."""
    return None if not data else Question(**{field.name: data[field.name] for field in fields(Question)})


def _sum(services: Services, expanded: Expanded, question: Question, bias: float) -> list[Any]:
    biases = f" Of the logit, biases bring {words.signed(bias)}." if "bias" in expanded.expansion.source_names else ""
    text = words.summary(services.paths, expanded, question) + biases
    return [dmc.Text(text, size="sm", fw=600), dmc.Text(words.total(services.paths, expanded, question), size="sm")]


def _whole(value: Any) -> int | None:
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError):
        return None


def _k(value: Any) -> int:
    number = _whole(value)
    return FIRST_K if number is None else min(max(number, 1), MAX_K)
