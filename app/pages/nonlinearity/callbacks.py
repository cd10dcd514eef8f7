"""What the Non-linearity page asks of the server: a network, its model, one head of it."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, html, no_update

from aotlens.plots import Theme
from app import ids
from app.components.graph import EMPTY
from app.components.nonlinearity_tables import fact_tiles, layers_table, role_buttons
from app.pages.guard import guarded
from app.services import Services
from app.services import nonlinearity_views as views
from app.services import nonlinearity_words as words
from app.services.nonlinearity import first_head, from_dict, from_form, slider_of, to_dict, within
from app.urlstate import NonlinearityState, format_nonlinearity


def register(app: Dash, services: Services) -> None:
    """The page's callbacks."""
    _register_choice(app, services)
    _register_model(app, services)
    _register_head(app, services)


def _register_choice(app: Dash, services: Services) -> None:
    @app.callback(
        Output(ids.NONLINEARITY, "data"),
        Output(ids.NONLINEARITY_MEANING, "children"),
        Output(ids.ETA_SLIDER, "value"),
        Output(ids.ETA_SLIDER, "disabled"),
        Output(ids.ETA_CAPTION, "children"),
        Output(ids.ONE_HEAD_PICKER, "children"),
        *(Output(id, name) for id in (ids.ONE_HEAD_FIRST, ids.ONE_HEAD_SECOND) for name in ("min", "max", "step")),
        Output(ids.notice(ids.NONLINEARITY_PANEL), "children"),
        Input(ids.NONLINEARITY_PRESET, "value"),
        Input(ids.NONLINEARITY_INPUTS, "value"),
        Input(ids.NONLINEARITY_ACTIVATION, "value"),
        Input(ids.NONLINEARITY_WIDTH, "value"),
        Input(ids.NONLINEARITY_DEPTH, "value"),
        Input(ids.NONLINEARITY_SEED, "value"),
        Input(ids.NONLINEARITY_KNOTS, "value"),
        Input(ids.NONLINEARITY_BOUND, "value"),
        Input(ids.NONLINEARITY_TOLERANCE, "value"),
        Input(ids.NONLINEARITY_CONSTRUCTION, "value"),
        Input(ids.NONLINEARITY_AUXILIARY, "value"),
        Input(ids.NONLINEARITY_VECTOR, "value"),
        Input(ids.ETA, "data"),
    )
    @guarded(None, None, no_update, no_update, "", no_update, *[no_update] * 6)
    def choose(*form: Any) -> tuple[Any, ...]:
        state = services.nonlinearity.canonical(from_form(*form))
        made = services.nonlinearity.compile(state)
        slider = slider_of(made.proof_etas[0] if state.eta is None else state.eta)
        shown = {**to_dict(state), "slider": slider, "address": format_nonlinearity(state)}
        said = [html.Div(words.meaning(made)), dmc.Text(words.exactness(made), size="sm", className="exact")]
        heads = role_buttons([(role.layer, role.head, role.gated) for role in made.roles])
        reach = (-state.bound, state.bound, state.bound / 200)
        eta = slider if state.eta is None else no_update
        return (shown, said, eta, state.activation == "silu", words.eta(made), heads, *reach, *reach)


def _register_model(app: Dash, services: Services) -> None:
    compile = services.nonlinearity.compile

    @app.callback(
        Output(ids.COMPILED_FACTS, "children"),
        Output(ids.COMPILED_LAYERS, "children"),
        Output(ids.notice(ids.COMPILED), "children"),
        Input(ids.NONLINEARITY, "data"),
    )
    @guarded([], None)
    def describe(data: Any) -> tuple[Any, ...]:
        state = chosen(data)
        if state is None:
            return [], None
        return fact_tiles(views.facts(compile(state))), layers_table(views.layer_rows(compile(state)))

    @app.callback(
        Output(ids.MASK_GRAPH, "figure"),
        Output(ids.notice(ids.MASK), "children"),
        Input(ids.NONLINEARITY, "data"),
        Input(ids.THEME, "data"),
    )
    @guarded(EMPTY)
    def draw_mask(data: Any, theme: Theme | None) -> tuple[Any, ...]:
        state = chosen(data)
        return (EMPTY if state is None else views.mask_figure(compile(state), theme or "light"),)

    @app.callback(
        Output(ids.COMPILED_ERROR_GRAPH, "figure"),
        Output(ids.COMPILED_ERROR_CAPTION, "children"),
        Output(ids.notice(ids.COMPILED_ERROR), "children"),
        Input(ids.NONLINEARITY, "data"),
        Input(ids.ONE_HEAD_SHOWN, "data"),
        Input(ids.COMPILED_SCALE, "value"),
        Input(ids.THEME, "data"),
    )
    @guarded(EMPTY, "")
    def draw_error(data: Any, head: Any, scale: str, theme: Theme | None) -> tuple[Any, ...]:
        state = chosen(data)
        if state is None:
            return EMPTY, ""
        made = compile(state)
        x = None if not head else within(state, head["x"])
        return views.error_figure(made, x, scale == "log", theme or "light"), words.error(made)

    @app.callback(
        Output(ids.COMPILED_HEADS_TABLE, "rowData"),
        Output(ids.notice(ids.COMPILED_HEADS), "children"),
        Input(ids.NONLINEARITY, "data"),
    )
    @guarded([])
    def list_heads(data: Any) -> tuple[Any, ...]:
        state = chosen(data)
        return ([] if state is None else views.head_rows(compile(state)),)


def _register_head(app: Dash, services: Services) -> None:
    @app.callback(
        Output(ids.ONE_HEAD_SHOWN, "data"),
        Output(ids.ONE_HEAD_SAYS, "children"),
        Output(ids.title(ids.ONE_HEAD), "children"),
        Output(ids.ONE_HEAD_PATTERN, "figure"),
        Output(ids.GATE_GRAPH, "figure"),
        Output(ids.GATE_CAPTION, "children"),
        Output(ids.SNIPPET_CODE, "children"),
        Output(ids.notice(ids.ONE_HEAD), "children"),
        Input(ids.NONLINEARITY, "data"),
        Input(ids.COMPILED_HEAD, "data"),
        Input(ids.ONE_HEAD_FIRST, "value"),
        Input(ids.ONE_HEAD_SECOND, "value"),
        Input(ids.THEME, "data"),
        State(ids.ONE_HEAD_SHOWN, "data"),
    )
    @guarded(None, [], "One head", EMPTY, EMPTY, "", "")
    def look(data: Any, head: Any, x1: Any, x2: Any, theme: Theme | None, before: Any) -> tuple[Any, ...]:
        state = chosen(data)
        if state is None:
            return None, [], "One head", EMPTY, EMPTY, "", ""
        made = services.nonlinearity.compile(state)
        layer, place = first_head(made, head)
        seen = services.nonlinearity.look(made, layer, place, within(state, (x1, x2)))
        shown = {"layer": layer, "head": place, "x": list(seen.x)}
        gate = views.gate_figure(made, seen, theme or "light")
        return (
            no_update if shown == before else shown,
            [html.P(line) for line in words.head(made, seen)],
            f"Head {layer}.{place}",
            views.pattern_figure(seen, theme or "light"),
            gate or EMPTY,
            words.gate(made, seen),
            words.snippet(made, seen.role, seen.x),
        )


def chosen(data: Any) -> NonlinearityState | None:
    """The network that is shown; None when there is none."""
    return from_dict(data) if data else None
