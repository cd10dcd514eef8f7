"""Callbacks of the Paths page: all that it shows of a logit in one answer, and of a score in another."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import dash_mantine_components as dmc
from dash import html, no_update

from aotlens.views.paths import PathsParameters, summary, total
from aotlens.views.scores import TRACE, ScoreParameters
from app.core import Core
from app.core.files import File, text_file
from app.core.labels import Labels
from app.pages.paths.address import PathsState
from app.pages.paths.ids import SCORE_VIEWS, VIEWS, ids
from app.pages.paths.score_tables import target, trace_lines
from app.pages.paths.service import Paths, head_names
from app.pages.paths.tables import effect_tables, head_columns, path_table, source_strip
from app.shell import ids as shell
from app.shell.app import App
from app.shell.choices import options
from app.shell.notices import empty
from app.shell.page import python_of
from app.shell.props import children, stores, values
from app.shell.score_lines import pair_table
from app.shell.sharing import save_files, search_tokens, submit_text
from app.shell.views import Own, python_lines, record, show_views, tables

_CHOICES = stores(position=ids.POSITION, without=ids.TAKEN, asked=ids.ASKED, before=ids.SHOWN) | values(
    target=ids.TARGET, versus=ids.VERSUS, by=ids.BY, k=ids.K, through=ids.THROUGH
)
_OF_SCORE = stores(cell=ids.CELL)
#: The library's own files of a trace: a drawing, a page, and its nodes.
_TRACE_FILES = {"svg": "image/svg+xml", "html": "text/html", "json": "application/json"}


def register(app: App, core: Core, paths: Paths) -> None:
    """Register the page's callbacks."""
    submit_text(app, prompt=ids.PROMPT, text=ids.TEXT, example=ids.EXAMPLE, checkpoint=ids.CHECKPOINT, run=ids.RUN)
    for choice in (ids.TARGET, ids.VERSUS):
        search_tokens(app, choice, ids.SHOWN, partial(_labels, paths), partial(_first_tokens, paths))
    _show_logit(app, paths)
    _show_score(app, paths)


def _show_logit(app: App, paths: Paths) -> None:
    def list_paths(chosen: PathsParameters, top: Any) -> dict[str, Any]:
        title = VIEWS[ids.TOP].title + ("" if chosen.through is None else f" through {chosen.through}")
        caption = VIEWS[ids.TOP].caption(chosen, top)
        return {"rows": [path_table(paths.core.links, chosen, top)], "caption": caption, "title": title}

    def list_heads(chosen: PathsParameters, heads: Any) -> dict[str, Any]:
        return {"columns": head_columns(heads.unit), "rows": heads.to_frame().to_dict("records")}

    def take_away(chosen: PathsParameters, effect: Any) -> dict[str, Any]:
        path = "" if effect.without.startswith("head ") else "the path "
        why = [html.P(VIEWS[ids.WITHOUT].caption(chosen, effect), className="caption")] if effect.reversed else []
        return {"body": [*why, *effect_tables(effect)], "title": f"Without {path}{effect.without}"}

    view = VIEWS[ids.WITHOUT]
    nothing = {
        "body": empty(str(view.missing(PathsParameters(checkpoint="", text="", position=0, target=0)))),
        "title": view.title,
    }
    panels = {
        ids.PANEL: Own(
            view=VIEWS[ids.PANEL],
            draw=partial(choose, paths),
            parts=(),
            outputs=stores(
                shown=ids.SHOWN, position=ids.POSITION, targets=ids.TARGET, others=ids.VERSUS, heads=ids.THROUGH,
                strip=shell.drawn(ids.STRIP),
            )
            | children(count=ids.COUNT, sum=ids.SUM, notes=ids.NOTES)
            | values(target=ids.TARGET, versus=ids.VERSUS, through=ids.THROUGH),
            empty={
                "position": no_update, "targets": [], "target": None, "others": [], "versus": None, "heads": [],
            },
            reads=lambda chosen: (chosen.by, chosen.k, chosen.through),
        ),
        ids.TOP: Own(
            view=VIEWS[ids.TOP], draw=list_paths, parts=("caption", "title"), empty={"title": "Largest paths"},
            outputs=stores(rows=shell.drawn(ids.PATHS)),
        ),
        ids.HEADS: Own(view=VIEWS[ids.HEADS], draw=list_heads, parts=("columns", "rows")),
        ids.FLOW: VIEWS[ids.FLOW],
        ids.ORDERS: VIEWS[ids.ORDERS],
        ids.WITHOUT: Own(view=view, draw=take_away, parts=("body", "title"), empty=nothing, quiet=True),
    }  # fmt: skip
    show_views(app, paths.workshop, panels, paths.values, shown=ids.PROMPT, keys=ids.DRAWN, inputs=_CHOICES)
    saved = {panel: each for panel, each in VIEWS.items() if panel != ids.PANEL}
    as_json = {panel: each for panel, each in saved.items() if panel != ids.HEADS}
    files = tables(paths.workshop, saved, paths.values) | tables(paths.workshop, as_json, paths.values, "json", record)
    save_files(app, files, stores(shown=ids.PROMPT) | _CHOICES)


def choose(paths: Paths, chosen: PathsParameters, sources: Any) -> dict[str, Any]:
    """Return which logit is explained, what else could be, and what it says."""
    expanded = paths.expanded(chosen)
    labels = paths.labels(chosen.checkpoint)
    offered = paths.choices({"checkpoint": chosen.checkpoint, "text": chosen.text}, chosen.position)
    others = [token for token in offered if token != chosen.target]
    fields = {name: getattr(chosen, name) for name in SHOWN}
    return {
        "shown": {**fields, "run": expanded.key, "tokens": list(expanded.expansion.tokens)},
        "position": chosen.position,
        "strip": source_strip(sources.str_tokens, sources.of_tokens, chosen.position, sources.unit),
        "targets": options(labels, [chosen.target, *offered]),
        "target": str(chosen.target),
        "others": options(labels, [*([] if chosen.versus is None else [chosen.versus]), *others]),
        "versus": None if chosen.versus is None else str(chosen.versus),
        "heads": head_names(expanded),
        "through": chosen.through,
        "count": f"{expanded.expansion.n_pos:,} of at most {expanded.limit:,} tokens",
        "sum": [dmc.Text(summary(sources), size="sm", fw=600), dmc.Text(total(sources), size="sm")],
        "notes": [dmc.Text(note, size="sm", className="exact") for note in expanded.notes],
    }


#: The fields of a logit in the store `shown`, under the address's names.
SHOWN = ("checkpoint", "text", "position", "target", "versus", "by", "k", "through")


def _labels(paths: Paths, shown: Any) -> Labels | None:
    return paths.labels(shown["checkpoint"]) if shown else None


def _first_tokens(paths: Paths, shown: Any) -> list[int]:
    return paths.choices(shown, shown["position"]) if shown else []


def _show_score(app: App, paths: Paths) -> None:
    def choose_score(chosen: ScoreParameters, score: Any) -> dict[str, Any]:
        return {"top": target(paths, chosen, score)}

    def list_pairs(chosen: ScoreParameters, top: Any) -> dict[str, Any]:
        words = paths.workshop.result(SCORE_VIEWS[ids.SCORE], chosen).words
        caption = SCORE_VIEWS[ids.PAIRS].caption(chosen, top)
        return {"caption": caption, "lines": [pair_table(paths.core.links, chosen, words, top)]}

    def say_trace(chosen: ScoreParameters, trace: Any) -> dict[str, Any]:
        return {"lines": trace_lines(paths, chosen, trace)}

    def own(panel: str, draw: Any, store: str, **rest: Any) -> Own:
        return Own(view=SCORE_VIEWS[panel], draw=draw, outputs=stores(**{store: shell.drawn(_LINES[panel])}), **rest)

    panels = dict(SCORE_VIEWS) | {
        # Where a score is refused, another one can still be chosen.
        ids.SCORE: own(
            ids.SCORE, choose_score, "top", parts=(), empty={"top": no_update},
            reads=lambda chosen: (chosen.said, chosen.reason),
        ),
        ids.PAIRS: own(ids.PAIRS, list_pairs, "lines", parts=("caption",)),
        ids.TRACE: own(ids.TRACE, say_trace, "lines", parts=("figure", "caption")),
    }  # fmt: skip
    show_views(app, paths.workshop, panels, paths.score, shown=ids.SCORE_PROMPT, keys=ids.SCORED, inputs=_OF_SCORE)
    saved = {panel: each for panel, each in SCORE_VIEWS.items() if panel != ids.SCORE}
    as_json = {panel: each for panel, each in saved.items() if panel != ids.TRACE}
    files = tables(paths.workshop, saved, paths.score) | tables(paths.workshop, as_json, paths.score, "json", record)
    for kind in _TRACE_FILES:
        files |= tables(paths.workshop, {ids.TRACE: TRACE}, paths.score, kind, partial(_trace_file, kind))
    save_files(app, files, stores(shown=ids.SCORE_PROMPT) | _OF_SCORE)


_LINES = {ids.SCORE: ids.SCORE_TOP, ids.PAIRS: ids.PAIR_LINES, ids.TRACE: ids.TRACE_LINES}


def _trace_file(kind: str, workshop: Any, view: Any, chosen: ScoreParameters) -> File:
    content: str = getattr(workshop.result(view, chosen), f"to_{kind}")()
    return text_file(f"{view.file(chosen)}.{kind}", content, _TRACE_FILES[kind])


def _panels(views: Mapping[str, Any], *but: str) -> list[str]:
    return [panel for panel in views if panel not in but]


@python_of(*_panels(VIEWS, ids.PANEL), *_panels(SCORE_VIEWS, ids.SCORE))
def python(core: Core, paths: Paths, state: PathsState, panel: str) -> list[str]:
    """Return the lines that give a panel's numbers."""
    if panel in VIEWS:
        return python_lines(VIEWS[panel], paths.of_address(state))
    return python_lines(SCORE_VIEWS[panel], paths.score_of_address(state))
