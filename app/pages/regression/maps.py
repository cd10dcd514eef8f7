"""Maps of a model's heads on one prompt: all of them, one of them, its numbers as a file and as Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from flask import Response, request

from aotlens.views import call
from aotlens.views.regression import N_SHOWN, Chosen
from app.core import head_maps
from app.core.errors import RequestError
from app.core.files import File, csv_file
from app.core.head_maps import View
from app.core.inference import PromptResult
from app.pages.regression.address import ADDRESS, RegressionState
from app.pages.regression.ids import ids
from app.pages.regression.service import Regressions
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.maps import answered
from app.shell.panel import about
from app.shell.props import stores, values
from app.shell.sharing import save_pictures

if TYPE_CHECKING:
    from aotlens.data import RegressionPrompts

GRID_ABOUT = about(
    "Row = layer, column = head; in each map, queries go down and keys across, in the order x1, y1, x2, y2, … Each map "
    "has its own colour scale, up to its largest value. Click one, or move with the arrow keys.",
)
MAP_ABOUT = about(
    "One head on one of the prompts that errors are measured on. Click an entry to lock it and its query's row, again "
    "or Escape to let it go; point at an entry for its exact value.",
    formula="A(i, j) = φ(score(i, j)); attention · ‖v‖ weighs it by the length of the key's value vector",
    source="A Mathematical Framework for Transformer Circuits (2021); MSSA: Attention-Only Transformers, Eq. 4",
)
#: Keys that a locked query's sentence names.
_N_KEYS = 3


def register(app: App, service: Regressions) -> None:
    """Register the routes of the maps, what is said of the prompt, and the picture of all heads for a paper.

    GET /regression/maps?checkpoint=…&prompt=…&view=…                  every head's map, in the widget's packed arrays
    GET /regression/maps/line?…&head=1.0&position=5                    a position's row and column, float32

    The query is that of the page's address.
    """

    def result_of(shown: Any, prompt: str) -> PromptResult:
        return service.prompt(service.values(shown), int(prompt or 0))

    def of_address(make: Callable[[PromptResult, RegressionState], bytes]) -> Response:
        state = ADDRESS.parse(request.query_string.decode())
        return answered(lambda: make(service.prompt(service.chosen(state), state.prompt), state), "packing maps")

    @app.server.get("/regression/maps")
    def regression_maps() -> Response:
        return of_address(lambda result, state: head_maps.packed_maps(result, state.view, ""))

    @app.server.get("/regression/maps/line")
    def regression_line() -> Response:
        def numbers(result: PromptResult, state: RegressionState) -> bytes:
            position = request.args.get("position", 0, type=int)
            return head_maps.line_bytes(result, *(state.head or (0, 0)), state.view, position)

        return of_address(numbers)

    @guarded(
        app,
        panel=ids.MAP,
        inputs=stores(shown=shell.seen(ids.MAP), head=ids.HEAD) | values(prompt=ids.PROMPT, query=ids.QUERY),
        parts=("caption",),
    )
    def say(shown: Any, head: Any, prompt: str, query: str | None) -> Answer:
        if not shown:
            return None
        result, prompts = result_of(shown, prompt), service.prompts(service.values(shown))
        patterns = result.patterns
        locked = None if query is None or int(query) >= patterns.n_pos else int(query)
        return {"caption": caption(result, prompts, int(prompt), _there(head, result), locked)}

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


def _there(head: Any, result: PromptResult) -> tuple[int, int]:
    """Return a head that the browser names, 0.0 where the model has no such head, as the widget shows it."""
    layer, number = head or (0, 0)
    patterns = result.patterns
    return (layer, number) if layer < patterns.n_layers and number < patterns.n_heads else (0, 0)


def _need(shown: Any) -> None:
    if not shown:
        raise RequestError("Nothing is shown, so there is nothing to save: put right what is wrong above.")
