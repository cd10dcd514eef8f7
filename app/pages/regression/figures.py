"""What of in-context regression is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aotlens.denoise.regression import ESTIMATORS
from aotlens.plots import Theme, head_points, layer_curves, matrix_map, regression_curves, support_points
from app.pages.regression.service import Asked, Regressions

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from app.core.switches import How


def errors_figure(service: Regressions, asked: Asked, axis: str, theme: Theme) -> go.Figure:
    """Errors by the number of examples, of models with bands and of baselines."""
    figure = regression_curves(service.errors(asked), quiet=tuple(ESTIMATORS), log=axis == "log", theme=theme)
    return _named(figure, "In-context regression")


def layers_figure(service: Regressions, asked: Asked, axis: str, theme: Theme) -> go.Figure:
    """The answer after each layer, beside the nearest algorithms."""
    figure = layer_curves(service.readings(asked), log=axis == "log", theme=theme)
    return _named(figure, f"Answer after each layer of {asked.checkpoint}")


def without_figure(service: Regressions, asked: Asked, how: How, theme: Theme) -> go.Figure:
    """What each head is worth."""
    result = service.without(asked, how)
    shape = (1 + max(layer for layer, _ in result.heads), 1 + max(head for _, head in result.heads))
    figure = head_points(
        result.changes.reshape(shape), result.intervals().reshape(*shape, 2), quantity="change in squared error",
        theme=theme,
    )  # fmt: skip
    return _named(figure, f"{asked.checkpoint} without each head")


def motifs_figure(service: Regressions, asked: Asked, theme: Theme) -> go.Figure:
    """Attention to each motif beyond even attention, a row a head."""
    scores = service.motifs(asked)
    excess = scores.excess
    rows = [f"{layer}.{head}" for layer, head in np.ndindex(*excess.shape[1:])]
    columns = [motif.replace("_", " ") for motif in scores.motifs]
    figure = matrix_map(
        excess.reshape(len(columns), -1).T, rows, columns, quantity="attention beyond even", row_title="head",
        column_title="", theme=theme,
    )  # fmt: skip
    return _named(figure, f"Motifs of {asked.checkpoint}")


def support_figure(service: Regressions, asked: Asked, theme: Theme) -> go.Figure:
    """How far each head's scores go with the coordinates that count."""
    return _named(support_points(service.support(asked), theme=theme), f"Support of {asked.checkpoint}")


def _named(figure: go.Figure, name: str) -> go.Figure:
    figure.layout.meta = {**(figure.layout.meta or {}), "name": name}
    return figure
