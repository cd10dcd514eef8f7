"""What the Subspace denoising page asks of the server: a mixture, and pictures of it at all layers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dash import html, no_update

from aotlens.plots import Theme
from app.core import Core
from app.core.errors import RequestError
from app.core.files import File
from app.pages.subspaces import audit_callbacks, figures, files, words
from app.pages.subspaces.address import PARAMETERS, SubspacesState
from app.pages.subspaces.ids import ids
from app.pages.subspaces.service import Subspaces, from_dict, from_form, head_of, to_dict
from app.pages.subspaces.tables import conditions_table
from app.shell import ids as shell
from app.shell.app import App
from app.shell.callbacks import Answer, guarded
from app.shell.props import children, props, stores, values
from app.shell.sharing import save_files, show_values

SLIDERS = {name: getattr(ids, name.upper()) for name in PARAMETERS}


def register(app: App, core: Core, service: Subspaces) -> None:
    """The page's callbacks."""
    _register_choice(app, service)
    _register_panels(app, service)
    audit_callbacks.register(app, service.audits)
    show_values(app, [*SLIDERS.values(), ids.LAYER])
    save_files(
        app,
        {entry: partial(make_file, service, entry) for entry in _FILES},
        stores(shown=ids.SHOWN) | values(layer=ids.LAYER, picture=ids.PICTURE, head=ids.HEAD),
    )


def _register_choice(app: App, service: Subspaces) -> None:
    @guarded(
        app,
        panel=ids.PANEL,
        inputs=values(**SLIDERS, phi=ids.PHI, bases=ids.BASES),
        state=values(layer=ids.LAYER, head=ids.HEAD),
        output=stores(shown=ids.SHOWN, heads=ids.HEAD)
        | children(captions=ids.CAPTIONS)
        | values(layer=ids.LAYER, head=ids.HEAD)
        | props("disabled", unused=ids.THRESHOLD)
        | {"last": (ids.LAYER, "max"), "marks": (ids.LAYER, "marks")},
        parts=("body",),
        empty={"heads": no_update},
    )
    def choose(layer: Any, head: Any, **form: Any) -> Answer:
        state = from_form(**form)
        unrolling = service.unroll(state)
        last = len(unrolling.tokens) - 1
        return {
            "shown": to_dict(state),
            "body": [html.Div(line) for line in words.meaning(unrolling, service.conditions(state))],
            "captions": [html.Div(line, hidden=True) for line in words.captions(unrolling)],
            "last": last,
            "marks": [{"value": number, "label": str(number)} for number in range(last + 1)],
            "layer": min(int(layer or 0), last),
            "heads": [{"value": str(number), "label": str(number)} for number in range(1, state.clusters + 1)],
            "head": str(min(int(head or 1), state.clusters)),
            "unused": state.phi == "softmax",
        }


def _register_panels(app: App, service: Subspaces) -> None:
    @guarded(
        app,
        panel=ids.CLOUD,
        inputs=stores(shown=ids.SHOWN, theme=shell.THEME) | values(picture=ids.PICTURE),
        state=values(layer=ids.LAYER),
        parts=("figure",),
    )
    def draw_cloud(shown: Any, theme: Theme, **looks: Any) -> Answer:
        state = chosen(shown, **looks)
        return state and {"figure": figures.cloud_figure(service, state, theme)}

    @guarded(
        app,
        panel=ids.SNR,
        inputs=stores(shown=ids.SHOWN, theme=shell.THEME),
        state=values(layer=ids.LAYER),
        parts=("figure",),
    )
    def draw_snr(shown: Any, theme: Theme, **looks: Any) -> Answer:
        state = chosen(shown, **looks)
        return state and {"figure": figures.snr_figure(service, state, theme)}

    @guarded(
        app,
        panel=ids.MEMBERSHIP,
        inputs=stores(shown=ids.SHOWN, theme=shell.THEME) | values(head=ids.HEAD),
        state=values(layer=ids.LAYER),
        parts=("figure", "title"),
    )
    def draw_memberships(shown: Any, theme: Theme, **looks: Any) -> Answer:
        state = chosen(shown, **looks)
        return state and {
            "figure": figures.membership_figure(service, state, theme),
            "title": f"Memberships φ in subspace {head_of(state)}",
        }

    @guarded(app, panel=ids.CONDITIONS, inputs=stores(shown=ids.SHOWN), parts=("body",))
    def list_conditions(shown: Any) -> Answer:
        state = chosen(shown)
        return state and {"body": conditions_table(figures.condition_rows(service, state))}


_FILES: dict[str, Callable[[Subspaces, SubspacesState], File]] = {
    shell.export(ids.CLOUD, "csv"): files.cloud_csv,
    shell.export(ids.SNR, "csv"): files.snr_csv,
    shell.export(ids.MEMBERSHIP, "csv"): files.membership_csv,
    shell.export(ids.CONDITIONS, "csv"): files.conditions_csv,
}


def make_file(service: Subspaces, entry: str, shown: Any, **looks: Any) -> File:
    """The file for an entry of an export menu."""
    state = chosen(shown, **looks)
    if state is None:
        raise RequestError("Nothing is shown, so there is nothing to save: put right what is wrong above.")
    return _FILES[entry](service, state)


def chosen(shown: Any, **looks: Any) -> SubspacesState | None:
    """The mixture that is shown and how it is looked at; None where there is none."""
    if not shown:
        return None
    whole = {name: int(looks[name] or 0) for name in ("layer", "head") if name in looks}
    return from_dict(shown, **{**looks, **whole})
