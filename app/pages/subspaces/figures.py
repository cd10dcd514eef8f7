"""What of a mixture is drawn."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from aotlens.plots import Theme, audit_curves, membership_maps, snr_by_layer, token_clouds
from app.pages.subspaces.address import SubspacesState
from app.pages.subspaces.service import Subspaces, head_of
from app.pages.subspaces.service_audit import Audited
from app.pages.subspaces.words import PICTURES

if TYPE_CHECKING:
    import plotly.graph_objects as go


def cloud_figure(service: Subspaces, state: SubspacesState, theme: Theme) -> go.Figure:
    """The tokens, in the picture that was asked for."""
    points, labels = service.points(state), service.unroll(state).mixture.labels.numpy()
    figure = token_clouds(
        points.coordinates, labels, points.axes, layer=_layer(service, state), ranges=points.ranges, theme=theme
    )
    return _named(figure, service, state, theme, f"Tokens: {PICTURES[state.picture]}")


def snr_figure(service: Subspaces, state: SubspacesState, theme: Theme) -> go.Figure:
    """SNR by layer, and the theorem's rate where it has one."""
    unrolling = service.unroll(state)
    rate = None if math.isnan(unrolling.rate) else unrolling.rate
    figure = snr_by_layer(
        unrolling.snr.numpy(), rate=rate, exact_layers=unrolling.exact_layers, layer=_layer(service, state), theme=theme
    )
    return _named(figure, service, state, theme, "SNR by layer")


def membership_figure(service: Subspaces, state: SubspacesState, theme: Theme) -> go.Figure:
    """φ within the chosen subspace."""
    patterns, labels = service.memberships(state)
    figure = membership_maps(patterns, labels, layer=_layer(service, state), theme=theme)
    return _named(figure, service, state, theme, f"Memberships in subspace {head_of(state)}")


def audit_figure(found: Audited, principal: bool, theme: Theme) -> go.Figure:
    """SNR after ÷ before every layer of a trained model."""
    figure = audit_curves(found.audit, principal=principal, theme=theme)
    figure.layout.meta = {"name": f"{'Principal directions' if principal else 'Subspaces'} of {found.order.checkpoint}"}
    return figure


def condition_rows(service: Subspaces, state: SubspacesState) -> list[dict[str, Any]]:
    """One record a condition of the theorem."""
    return [dict(vars(row)) for row in service.conditions(state).rows]


def _layer(service: Subspaces, state: SubspacesState) -> int:
    return min(state.layer, len(service.unroll(state).tokens) - 1)


def _named(figure: go.Figure, service: Subspaces, state: SubspacesState, theme: Theme, name: str) -> go.Figure:
    """With what the browser knows the figure by, once it is drawn, and the layer that it stands at."""
    key = f"{state} {theme} {name}"
    figure.layout.meta = {"name": name, "layer": _layer(service, state), "key": key}
    return figure
