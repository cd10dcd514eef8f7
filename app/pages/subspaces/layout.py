"""The Subspace denoising page's layout."""

from __future__ import annotations

import dash_mantine_components as dmc
from dash import dcc, html

from aotlens.views.subspaces import BASES, CLOUD, CONDITIONS, MEMBERSHIP, PARAMETERS, PHIS, PICTURES, SNR
from app.core import Core
from app.pages.subspaces import explanations
from app.pages.subspaces.address import SubspacesState
from app.pages.subspaces.audit_layout import audit_tab, named_audit
from app.pages.subspaces.ids import ids
from app.pages.subspaces.service import Subspaces
from app.shell import ids as shell
from app.shell.controls import parameter_slider, segments, slider, switch_of
from app.shell.panel import panel, tabs
from app.shell.views import about_view, view_panel


def layout(core: Core, service: Subspaces, state: SubspacesState) -> html.Div:
    """Lay out the page for an address; with nothing in it, three clusters at which the theorem holds for some
    layers."""
    return html.Div(
        [
            html.H1("Subspace denoising", className="sr-only"),
            dcc.Store(id=ids.SHOWN),
            dcc.Store(id=ids.MADE, data=named_audit(core, state)),
            dcc.Store(id=ids.AUDITED),
            dcc.Store(id=ids.AUDIT_KEYS),
            tabs(
                ids.TAB,
                state.tab,
                {
                    "mixture": ("Synthetic tokens", _mixture(state)),
                    "models": ("Trained models", audit_tab(core, state)),
                },
                label="Subspace denoising",
            ),
        ],
        id=ids.PAGE,
        className="subspaces-page",
        **{"data-empty": ""},
    )


def _mixture(state: SubspacesState) -> html.Div:
    heads = [{"value": str(number), "label": str(number)} for number in range(1, state.clusters + 1)]
    return html.Div(
        [
            _parameters(state),
            panel(
                ids.PANEL, "Subspace denoising", explanations.PANEL,
                [html.Div(id=shell.body(ids.PANEL), className="meaning", role="status"), _layer_slider(state)],
            ),
            view_panel(
                ids.CLOUD, CLOUD, "graph-subspaces", captioned=False,
                controls=switch_of(ids.PICTURE, "Picture of the tokens", state.picture, PICTURES),
            ),
            view_panel(ids.SNR, SNR, "graph-subspaces", captioned=False),
            view_panel(
                ids.MEMBERSHIP, MEMBERSHIP, "graph-subspaces", captioned=False,
                controls=dmc.SegmentedControl(
                    id=ids.HEAD, data=heads, value=str(min(state.head, state.clusters)), size="xs",
                    **{"aria-label": "Subspace"},
                ),
            ),
            panel(
                ids.CONDITIONS, CONDITIONS.title, about_view(CONDITIONS),
                html.Div(id=shell.body(ids.CONDITIONS), className="conditions-box"), exports=("csv", "python"),
            ),
        ],
        className="subspaces-mixture",
    )  # fmt: skip


def _parameters(state: SubspacesState) -> html.Section:
    sliders = [
        parameter_slider(getattr(ids, name.upper()), each, getattr(state, name)) for name, each in PARAMETERS.items()
    ]
    return html.Section(
        [
            *sliders,
            segments(ids.PHI, "φ", state.phi, PHIS, size="xs"),
            segments(ids.BASES, "Subspaces", state.bases, BASES, size="xs"),
        ],
        className="panel subspaces-parameters",
        **{"aria-label": "Parameters"},
    )


def _layer_slider(state: SubspacesState) -> html.Div:
    box = slider(
        ids.LAYER, "Layer", min(state.layer, state.layers), 0, state.layers, 1, updatemode="drag",
        marks=[{"value": number, "label": str(number)} for number in range(state.layers + 1)],
    )  # fmt: skip
    return html.Div(
        [box, html.Div(id=ids.CAPTIONS, className="subspaces-captions", role="status")], className="layer-box"
    )
