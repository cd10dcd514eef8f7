"""Maps of a model's heads on one prompt: all of them, one of them, its numbers as a file and as Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from dash import html, no_update

from aotlens.plots import Theme, data_uri
from aotlens.views import call
from aotlens.views.regression import N_SHOWN, Chosen
from app.core import head_maps
from app.core.errors import RequestError
from app.core.files import File, csv_file
from app.core.head_maps import View
from app.core.inference import PromptResult
from app.pages.regression.address import RegressionState
from app.pages.regression.ids import ids
from app.pages.regression.service import Regressions
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.head_map import tell_lines
from app.shell.panel import about
from app.shell.props import props, stores, values
from app.shell.sharing import mark_head, save_pictures

if TYPE_CHECKING:
    from aotlens.data import RegressionPrompts

GRID_ABOUT = about(
    "Row = layer, column = head; in each map, queries go down and keys across, in the order x1, y1, x2, y2, … Each map "
    "has its own colour scale, up to its largest value. Click one, or move with the arrow keys.",
)
MAP_ABOUT = about(
    "One head on one of the prompts that errors are measured on. Click an entry to lock its query's row, again or "
    "Escape to let it go; point at an entry for its exact value.",
    formula="A(i, j) = φ(score(i, j)); attention · ‖v‖ weighs it by the length of the key's value vector",
    source="A Mathematical Framework for Transformer Circuits (2021); MSSA: Attention-Only Transformers, Eq. 4",
)
#: Keys that a locked query's sentence names.
_N_KEYS = 3


def register(app: App, service: Regressions) -> None:
    """Register the callbacks of the two panels."""
    mark_head(app, ids.CELLS, ids.LOOKED)

    def result_of(shown: Any, prompt: str) -> PromptResult:
        return service.prompt(service.values(shown), int(prompt or 0))

    @guarded(
        app,
        panel=ids.GRID,
        inputs=stores(shown=shell.seen(ids.GRID), theme=shell.THEME) | values(prompt=ids.PROMPT, view=ids.VIEW),
        output=props("src", picture=ids.GRID_PICTURE)
        | props("alt", says=ids.GRID_PICTURE)
        | stores(cells=shell.drawn(ids.CELLS)),
        empty={"picture": "", "says": ""},
    )
    def draw_grid(shown: Any, theme: Theme, prompt: str, view: View) -> Answer:
        if not shown:
            return None
        result = result_of(shown, prompt)
        shape = result.patterns.n_layers, result.patterns.n_heads
        return {
            "picture": data_uri(head_maps.grid_picture(result, view, False, theme)),
            "says": f"Maps of {head_maps.QUANTITIES[view]} of {shape[0]} layers × {shape[1]} heads",
            "cells": head_cells(*shape),
        }

    @guarded(
        app,
        panel=ids.MAP,
        inputs=stores(shown=shell.seen(ids.MAP), theme=shell.THEME, head=ids.HEAD)
        | values(prompt=ids.PROMPT, view=ids.VIEW, query=ids.QUERY),
        output=stores(looked=ids.LOOKED, head=ids.HEAD, queries=ids.QUERY) | values(query=ids.QUERY),
        parts=("figure", "title", "caption"),
        empty={"title": "One head", "head": no_update, "queries": no_update},
    )
    def draw_map(shown: Any, theme: Theme, head: Any, prompt: str, view: View, query: str | None) -> Answer:
        if not shown:
            return None
        result = result_of(shown, prompt)
        patterns = result.patterns
        layer, number = _within(head, patterns.n_layers, patterns.n_heads)
        locked = None if query is None or int(query) >= patterns.n_pos else int(query)
        drawn = (layer, number, view, False)
        figure = head_maps.head_figure(result, *drawn, theme, levels=True)
        if locked is not None:
            figure.layout.meta = {**figure.layout.meta, "line": head_maps.head_line(result, *drawn, locked)}
        prompts = service.prompts(service.values(shown))
        return {
            "figure": figure,
            "title": f"Head {layer}.{number}",
            "looked": {"layer": layer, "head": number},
            "head": [layer, number],
            "queries": [{"value": str(position), "label": name} for position, name in enumerate(patterns.str_tokens)],
            "query": None if locked is None else str(locked),
            "caption": caption(result, prompts, int(prompt), (layer, number), locked),
        }

    tell_lines(app, ids.MAP, result_of, stores(shown=ids.SHOWN) | values(prompt=ids.PROMPT))

    def all_heads(shown: Any, prompt: str, view: View) -> Any:
        _need(shown)
        return head_maps.all_heads_figure(result_of(shown, prompt), view, False)

    save_pictures(app, ids.GRID, all_heads, stores(shown=ids.SHOWN) | values(prompt=ids.PROMPT, view=ids.VIEW))


def caption(result: PromptResult, prompts: RegressionPrompts, number: int, head: Any, query: int | None) -> str:
    """Say what the model answers on the prompt; of a locked query, what it says there and where the head looks."""
    n_points = (result.patterns.n_pos + 1) // 2
    labels, answers = prompts.labels[number], result.logits[::2, 0]
    point = n_points - 1 if query is None else query // 2
    say = (
        f"Prompt {number}: at x{point + 1}, after {point} examples, the model says {float(answers[point]):+.3f}, "
        f"the label is {float(labels[point]):+.3f}."
    )
    if query is None:
        return f"{say} Click an entry of the map, or choose a query, to lock its row."
    if query % 2:
        say = f"Prompt {number}: y{point + 1} is a label, {float(labels[point]):+.3f}; nothing is asked there."
    row = result.patterns.pattern[head[0], head[1], query, : query + 1]
    order = np.argsort(-np.abs(row))[:_N_KEYS]
    strings = result.patterns.str_tokens
    where = ", ".join(f"{strings[key]} {row[key]:.3f}" for key in order)
    return f"{say} From {strings[query]} head {head[0]}.{head[1]} attends to {where}, most first."


def make_file(service: Regressions, shown: Any, head: Any, prompt: Any) -> File:
    """Return a head's map as a table."""
    _need(shown)
    chosen, number = service.values(shown), int(prompt or 0)
    result = service.prompt(chosen, number)
    patterns, (layer, head_number) = result.patterns, head
    queries, keys = np.nonzero(patterns.visible[min(head_number, len(patterns.visible) - 1)])
    names = np.array(patterns.str_tokens)
    columns = {"query": names[queries], "key": names[keys]}
    columns["attention"] = patterns.pattern[layer, head_number][queries, keys]
    columns["weighted"] = patterns.value_weighted()[layer, head_number][queries, keys]
    if patterns.scores is not None:
        columns["score"] = patterns.scores[layer, head_number][queries, keys]
    what = f"map-{chosen.checkpoint}-prompt{number}-head{layer}.{head_number}"
    return csv_file(f"{chosen.file(what)}.csv", pd.DataFrame(columns))


def python(chosen: Chosen, state: RegressionState, panel: str) -> list[str]:
    """Return the lines that give the maps, or one of them."""
    tokens = chosen.prompts(N_SHOWN).part("tokens").item(state.prompt)
    patterns = call("aotlens.heads.attention_patterns", chosen.model, tokens).named("patterns")
    maps = {
        "attention": patterns.part("pattern"), "weighted": patterns.method("value_weighted"),
        "scores": patterns.part("scores"),
    }[state.view]  # fmt: skip
    return (maps if panel == ids.GRID else maps.item(state.head or (0, 0))).python().splitlines()


def head_cells(n_layers: int, n_heads: int) -> list[html.Button]:
    """Return a transparent button over each head's map, which the shell's head picker listens to."""
    return [
        html.Button(
            html.Span(f"{layer}.{head}", className="cell-label"),
            className="pick-head regression-cell", tabIndex=-1, style={"grid-area": f"{layer + 1} / {head + 1}"},
            **{"data-layer": str(layer), "data-head": str(head), "aria-label": f"Head {layer}.{head}"},
        )
        for layer in range(n_layers)
        for head in range(n_heads)
    ]  # fmt: skip


def _within(head: Any, n_layers: int, n_heads: int) -> tuple[int, int]:
    layer, number = head or (0, 0)
    return min(int(layer), n_layers - 1), min(int(number), n_heads - 1)


def _need(shown: Any) -> None:
    if not shown:
        raise RequestError("Nothing is shown, so there is nothing to save: put right what is wrong above.")
