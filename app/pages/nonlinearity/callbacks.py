"""Callbacks of the Non-linearity page: a network, its model and one head of it, in one answer."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

from dash import html, no_update

from aotlens.distill import CompiledFFN
from aotlens.distill.compile.described import CompiledHeads
from aotlens.views.nonlinearity import ERROR, HEADS, LAYERS
from aotlens.views.nonlinearity_captions import eta, exactness, facts, network
from aotlens.views.nonlinearity_choice import ACTIVATIONS
from app.core import Core
from app.pages.nonlinearity import files
from app.pages.nonlinearity.address import NonlinearityState
from app.pages.nonlinearity.ids import VIEWS, ids
from app.pages.nonlinearity.service import Nonlinearity, NonlinearityRequest, slider_of
from app.shell import ids as shell
from app.shell.app import App
from app.shell.notices import taken_instead
from app.shell.page import python_of
from app.shell.props import children, props, stores, values
from app.shell.sharing import mark_head, save_files
from app.shell.tables import value_table
from app.shell.views import Own, python_lines, record, show_views, tables

#: The ends and the steps of the sliders of x.
_REACHES = {
    f"{prop} of {name}": (slider, prop)
    for name, slider in (("x1", ids.X1), ("x2", ids.X2))
    for prop in ("min", "max", "step")
}
_LAYER_COLUMNS = (
    ("layer", "", "number"),
    ("units", "Hidden units", "number"),
    ("η", "1 for SiLU", "number"),
    ("unit error", "At most 0.2785·η for ReLU", "number"),
    ("heads", "Heads that are not all zeros", "number strong"),
    ("stated (Thm 4.1)", "max{W, D} + 1", "number"),
    ("in its proof", "(W + 1) + 2(D + 1); without the last layer's constant where there is no bias", "number"),
)
_FILES = {"safetensors": files.model_safetensors, "ffn": files.ffn_safetensors, "zip": files.model_zip}


def register(app: App, core: Core, service: Nonlinearity) -> None:
    """Register the page's callbacks."""
    mark_head(app, ids.PICKER, ids.SHOWN)
    figures = {panel: Own(view=VIEWS[panel], parts=("figure", "caption"), quiet=True) for panel in (
        ids.ERROR, ids.GATE, ids.MASK
    )}  # fmt: skip
    panels = {
        ids.PANEL: Own(
            view=replace(LAYERS, name="network"), draw=partial(choose, service), parts=(), empty={"heads": no_update},
            outputs=stores(shown=ids.SHOWN, heads=shell.drawn(ids.PICKER))
            | children(meaning=ids.MEANING, exactness=ids.EXACTNESS, eta=ids.ETA_CAPTION)
            | values(slider=ids.ETA_SLIDER) | props("disabled", disabled=ids.ETA_SLIDER) | _REACHES,
            reads=lambda chosen: (chosen.head, chosen.point, chosen.scale),
        ),
        ids.COMPILED: Own(
            view=LAYERS, draw=partial(describe, service), parts=(), quiet=True,
            outputs=stores(facts=shell.drawn(ids.FACTS), layers=shell.drawn(ids.LAYERS)),
        ),
        ids.HEADS: Own(view=HEADS, draw=list_heads, parts=("rows",), quiet=True),
        ids.ONE: Own(
            view=VIEWS[ids.ONE], draw=name_head, parts=("figure", "caption", "title"), quiet=True,
            empty={"title": VIEWS[ids.ONE].title},
        ),
        **figures,
    }  # fmt: skip
    before = stores(before=ids.SHOWN)
    show_views(app, service.workshop, panels, service.values, shown=ids.CHOSEN, keys=ids.DRAWN, inputs=before)
    saved = tables(service.workshop, VIEWS, service.values) | tables(
        service.workshop, VIEWS, service.values, "json", record
    )
    for kind, write in _FILES.items():
        saved |= tables(service.workshop, {ids.COMPILED: LAYERS}, service.values, kind, write)
    save_files(app, saved, stores(shown=ids.CHOSEN))


def choose(service: Nonlinearity, chosen: NonlinearityRequest, compiled: CompiledFFN) -> dict[str, Any]:
    """Return the network that is shown, what is said of it, and where its sliders stand."""
    by_proof = chosen.by_proof.run(service.workshop).etas
    slider = slider_of(by_proof[0] if chosen.eta is None else chosen.eta)
    reach = {"min": -chosen.bound, "max": chosen.bound, "step": chosen.bound / 200}
    state = {name: getattr(chosen, name) for name in NonlinearityState.__dataclass_fields__ if hasattr(chosen, name)}
    layer, head = chosen.head  # type: ignore[misc]
    heads: CompiledHeads = service.workshop.result(HEADS, chosen)
    return {
        "shown": {**state, "layer": layer, "head": head, "x": list(chosen.point), "slider": slider},
        "meaning": network(chosen, compiled),
        "exactness": exactness(chosen),
        "slider": slider if chosen.eta is None else no_update,  # the hand that slides is not moved
        "disabled": chosen.activation == "silu",
        "eta": eta(chosen, compiled, by_proof),
        "heads": no_update if chosen.same_heads else role_buttons(heads),
        **{name: reach[name.split()[0]] for name in _REACHES},
        **({"notice": taken_instead(chosen.said)} if chosen.said else {}),
    }


def describe(service: Nonlinearity, chosen: NonlinearityRequest, compiled: CompiledFFN) -> dict[str, Any]:
    """Return numbers of the model, and a table of its layers."""
    tiles = [
        html.Div(
            [
                html.Dt(name, className="fact-name"),
                html.Dd([html.Span(value, className="fact-value"), html.Span(why, className="fact-why")]),
            ],
            className="fact",
        )
        for name, value, why in facts(chosen, compiled, service.workshop.result(ERROR, chosen).measured)
    ]
    rows = [
        (
            str(row.layer), f"{row.units} {ACTIVATIONS[row.activation]}", f"{row.eta:.3g}",
            f"≤ {row.unit_error:.3g}" if row.unit_error else "0 (exact)", str(row.heads), str(row.paper_heads),
            str(row.proof_heads),
        )
        for row in compiled.to_frame().itertuples()
    ]  # fmt: skip
    return {"facts": [html.Dl(tiles, className="facts")], "layers": [value_table(_LAYER_COLUMNS, rows)]}


def list_heads(chosen: NonlinearityRequest, heads: CompiledHeads) -> dict[str, Any]:
    """Return a row a head."""
    rows = heads.to_frame().to_dict("records")
    for row in rows:
        row |= {"head": f"{row['layer']}.{row['head']}", "eta": None if math.isnan(row["eta"]) else row["eta"]}
    return {"rows": rows}


def name_head(chosen: NonlinearityRequest, result: Any) -> dict[str, Any]:
    """Return the head's name."""
    return {"title": f"Head {result.role.layer}.{result.role.head}"}


def role_buttons(heads: CompiledHeads) -> list[html.Div]:
    """Return a button for each head that writes something, a row a layer; those without a gate look different."""
    return [
        html.Div(
            [
                html.Button(
                    f"{layer}.{role.head}",
                    className="pick-head" if role.gated else "pick-head pick-linear",
                    tabIndex=-1,
                    title=f"Layer {layer}, head {role.head}: {'a gate' if role.gated else 'linear: sees itself only'}",
                    **{
                        "data-layer": f"{layer}",
                        "data-head": f"{role.head}",
                        "aria-label": f"Head {layer}.{role.head}",
                    },
                )
                for role in row
            ],
            className="pick-layer",
        )
        for layer, row in groupby(heads.roles, key=lambda role: role.layer)
    ]


@python_of(*VIEWS)
def python(core: Core, service: Nonlinearity, state: NonlinearityState, panel: str) -> list[str]:
    """Return the lines that give a panel's numbers."""
    return python_lines(VIEWS[panel], service.of_address(state))
