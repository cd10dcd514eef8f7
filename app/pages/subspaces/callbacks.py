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
    _register_pictures(app, service)
    audit_callbacks.register(app, service.audits)
    show_values(app, [*SLIDERS.values(), ids.LAYER])
    save_files(
        app,
        {entry: partial(make_file, service, entry) for entry in _FILES},
        stores(shown=ids.SHOWN) | values(layer=ids.LAYER, picture=ids.PICTURE, head=ids.HEAD),
    )


def _register_pictures(app: App, service: Subspaces) -> None:
    # One answer for all that a slider changes: each callback costs a round trip, and Dash's renderer dozens of steps.
    # The whole of it, whatever was changed: of two questions on their way Dash drops the first one's answer.
    @guarded(
        app,
        panel=ids.PANEL,
        inputs=values(**SLIDERS, phi=ids.PHI, bases=ids.BASES, picture=ids.PICTURE, head=ids.HEAD)
        | stores(theme=shell.THEME),
        state=values(layer=ids.LAYER),
        output=stores(shown=ids.SHOWN, heads=ids.HEAD)
        | children(captions=ids.CAPTIONS, title=shell.title(ids.MEMBERSHIP), conditions=shell.body(ids.CONDITIONS))
        | values(layer=ids.LAYER, head=ids.HEAD)
        | props("disabled", unused=ids.THRESHOLD)
        | {"last": (ids.LAYER, "max"), "marks": (ids.LAYER, "marks")}
        | props(
            "figure", cloud=shell.graph(ids.CLOUD), snr=shell.graph(ids.SNR), membership=shell.graph(ids.MEMBERSHIP)
        ),
        parts=("body",),
        empty={"heads": no_update, "title": no_update},
    )
    def draw(layer: Any, head: Any, picture: Any, theme: Theme, **form: Any) -> Answer:
        mixture = from_form(**form)
        unrolling = service.unroll(mixture)
        last = len(unrolling.tokens) - 1
        state = chosen(
            to_dict(mixture),
            picture=picture,
            layer=min(int(layer or 0), last),
            head=min(int(head or 1), mixture.clusters),
        )
        assert state is not None
        return {
            "shown": to_dict(mixture),
            "body": [html.Div(line) for line in words.meaning(unrolling, service.conditions(mixture))],
            "captions": [html.Div(line, hidden=True) for line in words.captions(unrolling)],
            "last": last,
            "marks": [{"value": number, "label": str(number)} for number in range(last + 1)],
            "layer": state.layer,
            "head": str(state.head),
            "heads": [{"value": str(number), "label": str(number)} for number in range(1, mixture.clusters + 1)],
            "unused": mixture.phi == "softmax",
            "cloud": figures.cloud_figure(service, state, theme),
            "snr": figures.snr_figure(service, state, theme),
            "conditions": conditions_table(figures.condition_rows(service, state)),
            "membership": figures.membership_figure(service, state, theme),
            "title": f"Memberships φ in subspace {head_of(state)}",
        }


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
