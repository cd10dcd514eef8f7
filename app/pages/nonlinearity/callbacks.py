"""What the Non-linearity page asks of the server: a network, its model, one head of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import dash_mantine_components as dmc
from dash import html, no_update

from aotlens.plots import Theme
from app.core import Core
from app.core.errors import RequestError
from app.core.files import File
from app.pages.nonlinearity import captions, figures, files
from app.pages.nonlinearity.address import ADDRESS, NonlinearityState
from app.pages.nonlinearity.ids import ids
from app.pages.nonlinearity.service import Nonlinearity, first_head, from_dict, from_form, slider_of, to_dict, within
from app.pages.nonlinearity.tables import fact_tiles, layers_table, role_buttons
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded, part
from app.shell.graph import EMPTY
from app.shell.notices import taken_instead
from app.shell.props import children, props, stores, values
from app.shell.sharing import mark_head, save_files, when_seen


def register(app: App, core: Core, service: Nonlinearity) -> None:
    """The page's callbacks."""
    mark_head(app, ids.PICKER, ids.LOOK)
    when_seen(app, ids.SHOWN, (ids.COMPILED, ids.ERROR, ids.HEADS, ids.MASK))
    _register_choice(app, service)
    _register_model(app, service)
    _register_head(app, service)
    save_files(
        app,
        {entry: partial(make_file, service, entry) for entry in (*_OF_MODEL, *_OF_HEAD)},
        stores(shown=ids.SHOWN, look=ids.LOOK),
    )


def _register_choice(app: App, service: Nonlinearity) -> None:
    reaches = {
        f"{prop} of {name}": (slider, prop)
        for name, slider in (("x1", ids.X1), ("x2", ids.X2))
        for prop in ("min", "max", "step")
    }

    @guarded(
        app,
        panel=ids.PANEL,
        inputs=values(**ids.named("preset inputs activation width depth seed bound tolerance"), drawing=ids.KNOTS)
        | values(**ids.named("construction auxiliary vector"))
        | stores(eta=ids.ETA),
        output=stores(shown=ids.SHOWN, heads=shell.drawn(ids.PICKER))
        | children(meaning=ids.MEANING, eta=ids.ETA_CAPTION)
        | values(slider=ids.ETA_SLIDER)
        | props("disabled", disabled=ids.ETA_SLIDER)
        | reaches,
        empty={"heads": no_update},
    )
    def choose(**form: Any) -> Answer:
        state = service.canonical(from_form(**form))
        made = service.compile(state)
        slider = slider_of(made.proof_etas[0] if state.eta is None else state.eta)
        reach = {"min": -state.bound, "max": state.bound, "step": state.bound / 200}
        return {
            "shown": {**to_dict(state), "slider": slider},
            "meaning": [
                html.Div(captions.meaning(made)), dmc.Text(captions.exactness(made), size="sm", className="exact")
            ],
            "slider": slider if state.eta is None else no_update,
            "disabled": state.activation == "silu",
            "eta": captions.eta(made),
            "heads": role_buttons([(role.layer, role.head, role.gated) for role in made.roles]),
            **{name: reach[name.split()[0]] for name in reaches},
        }  # fmt: skip


def _register_model(app: App, service: Nonlinearity) -> None:
    of_state = partial(guarded, app, reads={"state": chosen})

    @of_state(
        panel=ids.COMPILED,
        inputs=stores(state=shell.seen(ids.COMPILED)),
        parts=("body",),
        output=children(facts=ids.FACTS),
    )
    def describe(state: NonlinearityState) -> Answer:
        made = service.compile(state)
        return {"facts": fact_tiles(figures.facts(made)), "body": layers_table(figures.layer_rows(made))}

    @of_state(panel=ids.MASK, inputs=stores(state=shell.seen(ids.MASK), theme=shell.THEME), parts=("figure",))
    def draw_mask(state: NonlinearityState, theme: Theme) -> Answer:
        return {"figure": figures.mask_figure(service.compile(state), theme)}

    @of_state(
        panel=ids.ERROR,
        inputs=stores(state=shell.seen(ids.ERROR), look=ids.LOOK, theme=shell.THEME) | values(scale=ids.SCALE),
        parts=("figure", "caption"),
    )
    def draw_error(state: NonlinearityState, look: Any, scale: str, theme: Theme) -> Answer:
        made = service.compile(state)
        x = None if not look else within(state, look["x"])
        return {"figure": figures.error_figure(made, x, scale == "log", theme), "caption": captions.error(made)}

    @of_state(panel=ids.HEADS, inputs=stores(state=shell.seen(ids.HEADS)), parts=("rows",))
    def list_heads(state: NonlinearityState) -> Answer:
        return {"rows": figures.head_rows(service.compile(state))}


def _register_head(app: App, service: Nonlinearity) -> None:
    of_state = partial(guarded, app, reads={"state": chosen})

    @of_state(
        panel=ids.ONE,
        inputs=stores(state=ids.SHOWN, head=ids.HEAD, theme=shell.THEME) | values(x1=ids.X1, x2=ids.X2),
        state=stores(before=ids.LOOK),  # what is still the same is not told again
        parts=("body", "title", "figure"),
        output={
            **stores(look=ids.LOOK),
            "gate": part(ids.GATE, "figure"),
            "gate caption": part(ids.GATE, "caption"),
        },
        empty={"title": "One head"},
    )
    def look(state: NonlinearityState, head: Any, x1: Any, x2: Any, theme: Theme, before: Any) -> Answer:
        made = service.compile(state)
        layer, place = first_head(made, head)
        seen = service.look(made, layer, place, within(state, (x1, x2)))
        said = None
        if before is None and head and tuple(head) != (layer, place):
            expected = "a head of this model that is not only zeros"
            said = taken_instead([ADDRESS.sentence("head", ADDRESS.written("head", head), expected, (layer, place))])
        return {
            "notice": said,
            "look": {"layer": layer, "head": place, "x": list(seen.x)},
            "body": [html.P(line) for line in captions.head(made, seen)],
            "title": f"Head {layer}.{place}",
            "figure": figures.pattern_figure(seen, theme),
            "gate": figures.gate_figure(made, seen, theme) or EMPTY,
            "gate caption": captions.gate(made, seen),
        }


_OF_MODEL: dict[str, Callable[..., File]] = {
    shell.export(ids.COMPILED, "csv"): files.layers_csv,
    shell.export(ids.COMPILED, "safetensors"): files.model_safetensors,
    shell.export(ids.COMPILED, "ffn"): files.ffn_safetensors,
    shell.export(ids.COMPILED, "zip"): files.model_zip,
    shell.export(ids.ERROR, "csv"): files.error_csv,
    shell.export(ids.HEADS, "csv"): files.heads_csv,
}
_OF_HEAD: dict[str, Callable[..., File]] = {
    shell.export(ids.ONE, "csv"): files.pattern_csv,
}


def make_file(service: Nonlinearity, entry: str, shown: Any, look: Any) -> File:
    """The file for an entry of an export menu."""
    state = chosen(shown)
    if state is None:
        raise RequestError("Nothing is compiled, so there is nothing to save: put right what is wrong above.")
    made = service.compile(state)
    if entry in _OF_MODEL:
        return _OF_MODEL[entry](made)
    if not look:
        raise RequestError("No head is shown: choose one first.")
    return _OF_HEAD[entry](made, service.look(made, look["layer"], look["head"], tuple(look["x"])))


def chosen(shown: Any) -> NonlinearityState | None:
    """The network that is shown; None when there is none."""
    return from_dict(shown) if shown else None
