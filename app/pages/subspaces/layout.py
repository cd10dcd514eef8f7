"""The Subspace denoising page's layout."""

from __future__ import annotations

import dash_mantine_components as dmc
from dash import dcc, html

from app.core import Core
from app.pages.subspaces import explanations, words
from app.pages.subspaces.address import PARAMETERS, SubspacesState
from app.pages.subspaces.audit_layout import audit_tab, named_audit
from app.pages.subspaces.ids import ids
from app.pages.subspaces.service import Subspaces, head_of
from app.shell import ids as shell
from app.shell.controls import parameter_slider, segments, slider, switch_of
from app.shell.graph import figure
from app.shell.panel import panel, tabs


def layout(core: Core, service: Subspaces, state: SubspacesState) -> html.Div:
    """The page for an address; with nothing in it, three clusters at which the theorem holds for some layers."""
    return html.Div(
        [
            html.H1("Subspace denoising", className="sr-only"),
            dcc.Store(id=ids.SHOWN),
            dcc.Store(id=ids.MADE, data=named_audit(core, state)),
            dcc.Store(id=ids.AUDITED),
            tabs(
                ids.TAB,
                state.tab,
                {"mixture": ("Drawn tokens", _mixture(state)), "models": ("Trained models", audit_tab(core, state))},
                label="Subspace denoising",
            ),
        ],
        id=ids.PAGE,
        className="subspaces-page",
        **{"data-empty": ""},
    )


def _mixture(state: SubspacesState) -> html.Div:
    pictures = ("png", "svg", "csv", "python")
    heads = [{"value": str(number), "label": str(number)} for number in range(1, state.clusters + 1)]
    return html.Div(
        [
            _parameters(state),
            panel(
                ids.PANEL, "Subspace denoising", explanations.PANEL,
                [html.Div(id=shell.body(ids.PANEL), className="meaning", role="status"), _layer_slider(state)],
            ),
            panel(
                ids.CLOUD, "Tokens", explanations.CLOUD, figure(ids.CLOUD, "graph-subspaces"),
                controls=switch_of(ids.PICTURE, "Picture of the tokens", state.picture, words.PICTURES),
                exports=pictures,
            ),
            panel(ids.SNR, "SNR by layer", explanations.SNR, figure(ids.SNR, "graph-subspaces"), exports=pictures),
            panel(
                ids.MEMBERSHIP, "Memberships φ", explanations.MEMBERSHIP,
                figure(ids.MEMBERSHIP, "graph-subspaces"),
                controls=dmc.SegmentedControl(
                    id=ids.HEAD, data=heads, value=str(head_of(state)), size="xs", **{"aria-label": "Subspace"}
                ),
                exports=pictures,
            ),
            panel(
                ids.CONDITIONS, "What the theorem assumes", explanations.CONDITIONS,
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
            segments(ids.PHI, "φ", state.phi, words.PHIS, size="xs"),
            segments(ids.BASES, "Subspaces", state.bases, words.BASES, size="xs"),
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
