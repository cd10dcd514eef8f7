"""What the In-context regression page asks of the server: errors of the models, and what one of them does."""

from __future__ import annotations

from functools import partial
from typing import Any

from dash import html, no_update

from aotlens.plots import Theme, data_uri
from app.core import Core, head_maps
from app.core.errors import RequestError
from app.core.head_maps import View
from app.core.inference import PromptResult
from app.core.switches import How
from app.pages.regression import figures, words
from app.pages.regression.address import N_SHOWN, PARAMETERS
from app.pages.regression.files import make_file
from app.pages.regression.ids import PANELS, ids
from app.pages.regression.service import Asked, Regressions
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.head_map import tell_lines
from app.shell.props import props, stores, values
from app.shell.sharing import mark_head, save_files, save_pictures, show_values, when_seen

SLIDERS = {name: getattr(ids, name.upper()) for name in PARAMETERS}


def register(app: App, core: Core, service: Regressions) -> None:
    """The page's callbacks."""
    show_values(app, [ids.DIMS, ids.NONZERO, *SLIDERS.values()])
    when_seen(app, ids.SHOWN, PANELS)
    _register_errors(app, core, service)
    _register_model(app, service)
    _register_maps(app, service)
    saved = (ids.ERRORS, ids.LAYERS, ids.MAP, ids.WITHOUT, ids.MOTIFS, ids.SUPPORT)
    save_files(
        app,
        {shell.export(panel, "csv"): partial(make_file, service, panel) for panel in saved},
        stores(shown=ids.SHOWN, head=ids.HEAD) | values(how=ids.HOW, prompt=ids.PROMPT),
    )


def _register_errors(app: App, core: Core, service: Regressions) -> None:
    @guarded(
        app,
        panel=ids.ERRORS,
        inputs=values(
            d=ids.D, models=ids.MODELS, checkpoint=ids.CHECKPOINT, dims=ids.DIMS, nonzero=ids.NONZERO, axis=ids.AXIS,
            **SLIDERS,
        )
        | stores(theme=shell.THEME),
        state=stores(before=ids.SHOWN),
        output=stores(shown=ids.SHOWN, offered=ids.MODELS, looked=ids.CHECKPOINT)
        | values(models=ids.MODELS, checkpoint=ids.CHECKPOINT, dims=ids.DIMS, nonzero=ids.NONZERO)
        | {
            "most_dims": (ids.DIMS, "max"), "most_nonzero": (ids.NONZERO, "max"),
            "one_dim": (ids.DIMS, "disabled"), "one_weight": (ids.NONZERO, "disabled"),
        },
        parts=("figure", "body", "caption"),
        empty=dict.fromkeys(("offered", "looked"), no_update),
    )  # fmt: skip
    def draw(
        d: str | None, models: list[str] | None, checkpoint: str | None, axis: str, theme: Theme, before: Any,
        **form: Any,
    ) -> Answer:  # fmt: skip
        if d is None:
            return None  # the panel says that there are no models
        width = int(d)
        if before is not None and before["d"] != width:
            form |= {"dims": None, "nonzero": None}  # sliders of other models end elsewhere
        asked = service.asked(tuple(models or ()), checkpoint, width, **form)
        results = service.errors(asked)
        names = list(service.by_width()[asked.d])
        return {
            "shown": {**asked.to_dict(), "named": [] if names == list(asked.models) else list(asked.models)},
            "offered": names, "looked": names, "models": list(asked.models),
            "checkpoint": asked.checkpoint, "dims": asked.dims or asked.d,
            "nonzero": asked.nonzero or asked.dims or asked.d,
            "most_dims": max(asked.d, 2), "most_nonzero": max(asked.d, 2),
            "one_dim": asked.d < 2, "one_weight": asked.d < 2,
            "figure": figures.errors_figure(service, asked, axis, theme),
            "body": [html.Div(line) for line in words.of_errors(asked, results)],
            "caption": words.of_training(core.catalog.info(asked.checkpoint).recipe),
        }  # fmt: skip


def _register_model(app: App, service: Regressions) -> None:
    @guarded(
        app, panel=ids.LAYERS, inputs=stores(shown=shell.seen(ids.LAYERS), theme=shell.THEME) | values(axis=ids.AXIS),
        parts=("figure", "caption"),
    )  # fmt: skip
    def draw_layers(shown: Any, theme: Theme, axis: str) -> Answer:
        if not shown:
            return None
        asked = Asked.from_dict(shown)
        return {
            "figure": figures.layers_figure(service, asked, axis, theme),
            "caption": words.of_layers(asked, service.readings(asked)),
        }

    @guarded(
        app, panel=ids.WITHOUT, inputs=stores(shown=shell.seen(ids.WITHOUT), theme=shell.THEME) | values(how=ids.HOW),
        parts=("figure", "caption"),
    )  # fmt: skip
    def draw_without(shown: Any, theme: Theme, how: How) -> Answer:
        if not shown:
            return None
        asked = Asked.from_dict(shown)
        return {
            "figure": figures.without_figure(service, asked, how, theme),
            "caption": words.of_without(asked, service.without(asked, how)),
        }

    @guarded(
        app, panel=ids.MOTIFS, inputs=stores(shown=shell.seen(ids.MOTIFS), theme=shell.THEME),
        parts=("figure", "caption"),
    )  # fmt: skip
    def draw_motifs(shown: Any, theme: Theme) -> Answer:
        if not shown:
            return None
        asked = Asked.from_dict(shown)
        return {
            "figure": figures.motifs_figure(service, asked, theme),
            "caption": words.of_motifs(service.motifs(asked)),
        }

    @guarded(
        app, panel=ids.SUPPORT, inputs=stores(shown=shell.seen(ids.SUPPORT), theme=shell.THEME),
        parts=("figure", "caption"),
    )  # fmt: skip
    def draw_support(shown: Any, theme: Theme) -> Answer:
        if not shown:
            return None
        asked = Asked.from_dict(shown)
        return {
            "figure": figures.support_figure(service, asked, theme),
            "caption": words.of_support(asked, service.support(asked)),
        }


def _register_maps(app: App, service: Regressions) -> None:
    mark_head(app, ids.CELLS, ids.LOOKED)

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
        result = _result(service, shown, prompt)
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
        asked, result = Asked.from_dict(shown), _result(service, shown, prompt)
        patterns = result.patterns
        layer, number = _within(head, patterns.n_layers, patterns.n_heads)
        locked = None if query is None or int(query) >= patterns.n_pos else int(query)
        drawn = (layer, number, view, False)
        figure = head_maps.head_figure(result, *drawn, theme, levels=True)
        if locked is not None:
            figure.layout.meta = {**figure.layout.meta, "line": head_maps.head_line(result, *drawn, locked)}
        prompts = service.prompts(asked, N_SHOWN)
        return {
            "figure": figure,
            "title": f"Head {layer}.{number}",
            "looked": {"layer": layer, "head": number},
            "head": [layer, number],
            "queries": [{"value": str(at), "label": name} for at, name in enumerate(patterns.str_tokens)],
            "query": None if locked is None else str(locked),
            "caption": words.of_map(result, prompts, int(prompt), (layer, number), locked),
        }

    tell_lines(app, ids.MAP, partial(_result, service), stores(shown=ids.SHOWN) | values(prompt=ids.PROMPT))

    def all_heads(shown: Any, prompt: str, view: View) -> Any:
        if not shown:
            raise RequestError("Nothing is shown, so there is nothing to save: put right what is wrong above.")
        return head_maps.all_heads_figure(_result(service, shown, prompt), view, False)

    save_pictures(
        app, ids.GRID, all_heads, stores(shown=ids.SHOWN) | values(prompt=ids.PROMPT, view=ids.VIEW)
    )  # fmt: skip


def _result(service: Regressions, shown: Any, prompt: str) -> PromptResult:
    return service.prompt(Asked.from_dict(shown), int(prompt or 0))


def _within(head: Any, n_layers: int, n_heads: int) -> tuple[int, int]:
    layer, number = head or (0, 0)
    return min(int(layer), n_layers - 1), min(int(number), n_heads - 1)


def head_cells(n_layers: int, n_heads: int) -> list[html.Button]:
    """A transparent button over each head's map, which the shell's head picker listens to."""
    return [
        html.Button(
            html.Span(f"{layer}.{head}", className="cell-label"),
            className="pick-head regression-cell", tabIndex=-1, style={"grid-area": f"{layer + 1} / {head + 1}"},
            **{"data-layer": str(layer), "data-head": str(head), "aria-label": f"Head {layer}.{head}"},
        )
        for layer in range(n_layers)
        for head in range(n_heads)
    ]  # fmt: skip
