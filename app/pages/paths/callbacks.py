"""What the Paths page asks of the server: which logit, its largest paths, their sums, and the model without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import dash_mantine_components as dmc
from dash import no_update

from aotlens.plots import Theme
from app.core import Core
from app.core.errors import RequestError
from app.core.files import File
from app.core.labels import Labels
from app.pages.paths import figures, files, score_callbacks, words
from app.pages.paths.address import FIRST_K, MAX_K, Ranking
from app.pages.paths.ids import PANELS, ids
from app.pages.paths.service import Expanded, Paths, Question
from app.pages.paths.tables import effect_tables, head_columns, path_table, source_strip
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.choices import options
from app.shell.notices import empty
from app.shell.props import children, stores, values
from app.shell.sharing import save_files, search_tokens, submit_text, when_seen


def register(app: App, core: Core, paths: Paths) -> None:
    """The page's callbacks."""
    submit_text(app, prompt=ids.PROMPT, text=ids.TEXT, example=ids.EXAMPLE, checkpoint=ids.CHECKPOINT, run=ids.RUN)
    when_seen(app, ids.SHOWN, PANELS)
    _register_choice(app, paths)
    for choice in (ids.TARGET, ids.VERSUS):
        search_tokens(app, choice, ids.SHOWN, partial(_labels, paths), partial(_first_tokens, paths))
    _register_panels(app, paths)
    score_callbacks.register(app, core)
    save_files(
        app,
        {entry: partial(make_file, paths, entry) for entry in (*_OF_QUESTION, *_OF_EFFECT)},
        stores(shown=ids.SHOWN, without=ids.TAKEN),
    )


def _register_choice(app: App, paths: Paths) -> None:
    @guarded(
        app,
        panel=ids.PANEL,
        inputs=stores(prompt=ids.PROMPT, position=ids.POSITION)
        | values(target=ids.TARGET, versus=ids.VERSUS, by=ids.BY, k=ids.K, through=ids.THROUGH),
        state=stores(asked=ids.ASKED, before=ids.SHOWN),
        output=stores(shown=ids.SHOWN, position=ids.POSITION, targets=ids.TARGET, others=ids.VERSUS, heads=ids.THROUGH)
        | stores(strip=shell.drawn(ids.STRIP))
        | children(count=ids.COUNT, sum=ids.SUM, notes=ids.NOTES)
        | values(target=ids.TARGET, versus=ids.VERSUS, through=ids.THROUGH),
        empty={"position": no_update, "targets": [], "target": None, "others": [], "versus": None, "heads": []},
    )
    def choose(
        prompt: Any, position: Any, target: Any, versus: Any, by: Ranking, k: Any, through: Any, asked: Any, before: Any
    ) -> Answer:
        expanded = paths.expand(prompt.get("checkpoint"), prompt.get("text") or "", length=prompt.get("length"))
        tokens = list(expanded.expansion.tokens)
        # By values, not by what Dash says has triggered this: a store that is new says so, too.
        if before is None:
            named = all(prompt.get(key) == asked[key] for key in ("checkpoint", "text"))
            position, target, versus = (position, asked["target"], asked["versus"]) if named else (None, None, None)
        elif before["tokens"] != tokens:
            position, target, versus = None, None, None  # a position means something in one text only
        elif before["run"] != expanded.key or position not in (None, before["position"]):
            target, versus = None, None  # another place, another first choice
        question = paths.question(expanded, _whole(position), _whole(target), _whole(versus), by, _k(k), through)
        values, bias = paths.sources(question)
        labels, offered = paths.labels(expanded.checkpoint), paths.choices(expanded, question.position)
        others = [token for token in offered if token != question.target]
        return {
            "shown": {**question.to_dict(), "run": expanded.key, "tokens": tokens},
            "position": question.position,
            "strip": source_strip(expanded.expansion.str_tokens, values, question.position, words.quantity(question)),
            "targets": options(labels, [question.target, *offered]),
            "target": str(question.target),
            "others": options(labels, [*([] if question.versus is None else [question.versus]), *others]),
            "versus": None if question.versus is None else str(question.versus),
            "heads": paths.head_names(expanded),
            "through": question.through,
            "count": f"{expanded.expansion.n_pos} of at most {expanded.limit} tokens",
            "sum": _sum(paths, expanded, question, bias),
            "notes": [dmc.Text(note, size="sm", className="exact") for note in expanded.notes],
        }


def _register_panels(app: App, paths: Paths) -> None:
    of_question = partial(guarded, app, reads={"question": chosen})

    @of_question(
        panel=ids.TOP,
        inputs=stores(question=shell.seen(ids.TOP)),
        parts=("body", "caption", "title"),
        empty={"title": "Largest paths"},
    )
    def list_paths(question: Question) -> Answer:
        return {
            "body": path_table(figures.top_rows(paths, question), words.quantity(question)),
            "caption": words.proof(paths.top(question), question),
            "title": words.listed(question),
        }

    @of_question(
        panel=ids.ORDERS, inputs=stores(question=shell.seen(ids.ORDERS), theme=shell.THEME), parts=("figure", "caption")
    )
    def draw_orders(question: Question, theme: Theme) -> Answer:
        return {
            "figure": figures.orders_figure(paths, question, theme),
            "caption": words.orders(paths.asked(question), paths.orders(question)[1]),
        }

    @of_question(
        panel=ids.FLOW, inputs=stores(question=shell.seen(ids.FLOW), theme=shell.THEME), parts=("figure", "caption")
    )
    def draw_flow(question: Question, theme: Theme) -> Answer:
        return {
            "figure": figures.flow_figure(paths, question, theme),
            "caption": words.flow(paths.flow(question)),
        }

    @of_question(panel=ids.HEADS, inputs=stores(question=shell.seen(ids.HEADS)), parts=("columns", "rows"))
    def list_heads(question: Question) -> Answer:
        return {
            "columns": head_columns(words.quantity(question)),
            "rows": figures.head_rows(paths, question),
        }

    @of_question(
        panel=ids.WITHOUT,
        inputs=stores(question=shell.seen(ids.WITHOUT), without=ids.TAKEN),
        parts=("body", "title"),
        empty={
            "body": empty("Click “without” beside a path, or a head in the table of heads."),
            "title": "Without a head or a path",
        },
    )
    def take_away(question: Question, without: str | None) -> Answer:
        if not without:
            return None
        effect = paths.without(question, without)
        rows = words.rows(paths, paths.asked(question), question, effect)
        title = f"Without {effect.name}" if effect.is_head else f"Without the path {effect.name}"
        return {"body": effect_tables(effect, rows), "title": title}


_OF_QUESTION: dict[str, Callable[..., File]] = {
    shell.export(ids.ORDERS, "csv"): files.orders_csv,
    shell.export(ids.ORDERS, "json"): files.orders_json,
    shell.export(ids.FLOW, "csv"): files.flow_csv,
    shell.export(ids.FLOW, "json"): files.flow_json,
    shell.export(ids.TOP, "csv"): files.top_csv,
    shell.export(ids.TOP, "json"): files.top_json,
    shell.export(ids.HEADS, "csv"): files.heads_csv,
}
_OF_EFFECT: dict[str, Callable[..., File]] = {
    shell.export(ids.WITHOUT, "csv"): files.without_csv,
    shell.export(ids.WITHOUT, "json"): files.without_json,
}


def make_file(paths: Paths, entry: str, shown: Any, without: str | None) -> File:
    """The file for an entry of an export menu."""
    question = chosen(shown)
    if question is None:
        raise RequestError("Nothing is shown, so there is nothing to save: run a text first.")
    if entry in _OF_QUESTION:
        return _OF_QUESTION[entry](paths, question)
    if not without:
        raise RequestError("Nothing is taken away: choose a path or a head first.")
    return _OF_EFFECT[entry](paths, question, without)


def _labels(paths: Paths, shown: Any) -> Labels | None:
    question = chosen(shown)
    return question and paths.labels(question.checkpoint)


def _first_tokens(paths: Paths, shown: Any) -> list[int]:
    question = chosen(shown)
    return [] if question is None else paths.choices(paths.asked(question), question.position)


def chosen(shown: Any) -> Question | None:
    """The logit that is shown; None when there is none."""
    return None if not shown else Question(**{field.name: shown[field.name] for field in fields(Question)})


def _sum(paths: Paths, expanded: Expanded, question: Question, bias: float) -> list[Any]:
    biases = f" Of the logit, biases bring {words.signed(bias)}." if "bias" in expanded.expansion.source_names else ""
    text = words.summary(paths, expanded, question) + biases
    return [dmc.Text(text, size="sm", fw=600), dmc.Text(words.total(paths, expanded, question), size="sm")]


def _whole(value: Any) -> int | None:
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError):
        return None


def _k(value: Any) -> int:
    number = _whole(value)
    return FIRST_K if number is None else min(max(number, 1), MAX_K)
