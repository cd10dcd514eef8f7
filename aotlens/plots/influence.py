"""Influences of training windows: by step, by retraining, and what is left without some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from aotlens.conventions import minus
from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET, Theme, base_layout
from aotlens.plots.labels import plotly_text

if TYPE_CHECKING:
    from aotlens.dynamics import Influence, InfluenceCheck, InfluenceProperties, InfluentialWindows, Removal, Retrained


def influence_steps(result: Influence, *, log: bool = False, theme: Theme = "light") -> go.Figure:
    """Draw Σ |dM/dw| over the windows of each step, as a share of all steps but the first, which is left out."""
    figure = go.Figure(layout=base_layout(theme))
    later = result.by_step[:, 1:]
    whole = later.sum(1, keepdims=True)
    for place, shares in enumerate(later / np.where(whole > 0, whole, 1)):
        figure.add_scatter(
            x=np.arange(1, result.n_steps), y=shares, name=plotly_text(result.measures[place]), mode="lines",
            line={"width": 1.4, "color": LINES[theme][place % len(LINES[theme])]},
            hovertemplate="step %{x:,}: %{y:.2%} of the influence",
        )  # fmt: skip
    figure.update_xaxes(title_text="step", type="log" if log else "linear")
    figure.update_yaxes(title_text="share of the influence", tickformat=".1%", rangemode="tozero")
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"}, showlegend=True)
    return figure


def window_table(result: InfluentialWindows, *, theme: Theme = "light") -> go.Figure:
    """Draw the windows at both ends as text; what stands earlier in a window is bold."""
    columns = {
        "": ["helps" if helps else "harms" for helps in result.helps],
        "influence": [minus(value, "+.3g") for value in result.influences],
        "step": [f"{step:,}" for step in result.steps],
        "document": [plotly_text(name) for name in result.documents],
        "text": [
            "".join(f"<b>{_shown(piece)}</b>" if place % 2 else _shown(piece) for place, piece in enumerate(pieces))
            for pieces in result.pieces
        ],
    }
    figure = go.Figure(layout=base_layout(theme))
    cell = {
        "align": "left",
        "fill": {"color": BACKGROUND[theme]},
        "line": {"color": QUIET[theme]},
        "font": {"color": INK[theme]},
    }
    figure.add_table(
        columnwidth=[1.2, 1.8, 1.1, 3.6, 9], header={"values": [*columns], **cell},
        cells={"values": [*columns.values()], "height": 22, **cell},
    )  # fmt: skip
    return figure


def _shown(piece: str) -> str:
    """Write text in one line."""
    return plotly_text(piece.replace("\n", "↵"))


def check_points(result: InfluenceCheck, *, theme: Theme = "light") -> go.Figure:
    """Draw each measure's retrainings: what influences predict, and what was found; beside them TracIn's order."""
    n = len(result.measures)
    titles = [
        f"{plotly_text(name)}: rank correlation {correlation(name):.2f}"
        for name in result.measures
        for correlation in (result.correlation, result.tracin_correlation)
    ]
    figure = make_subplots(rows=n, cols=2, subplot_titles=titles, horizontal_spacing=0.12, vertical_spacing=0.22 / n)
    figure.update_layout(base_layout(theme))
    axis = base_layout(theme)["xaxis"]
    for place in range(n):
        for column, (kind, predicted) in enumerate((("influence", result.predicted), ("TracIn", result.tracin)), 1):
            figure.add_scatter(
                x=predicted[place], y=result.found[place], mode="markers", name=kind, showlegend=False,
                marker={"size": 6, "color": LINES[theme][column - 1]}, customdata=np.arange(result.found.shape[1]),
                hovertemplate="subset %{customdata}<br>predicted %{x:.3g}<br>found %{y:+.3g}",
                row=place + 1, col=column,
            )  # fmt: skip
            figure.update_xaxes(**axis, title_text=f"predicted by {kind}", row=place + 1, col=column)
            figure.update_yaxes(**axis, row=place + 1, col=column)
        figure.update_yaxes(title_text="found", row=place + 1, col=1)
    figure.update_annotations(font={"size": 12, "color": INK[theme]})
    figure.update_layout(height=120 + 260 * n)
    return figure


def removal_lines(result: Removal, *, theme: Theme = "light") -> go.Figure:
    """Draw the measure over training, with all windows and without those at the ends; random removals are thin."""
    figure = go.Figure(layout=base_layout(theme))
    runs = [
        ("without the most helpful", result.without_helpful, result.random_helpful),
        ("without the most harmful", result.without_harmful, result.random_harmful),
    ]
    for place, (name, own, random) in enumerate(runs):
        colour = LINES[theme][place]
        for draw, values in enumerate(random):
            figure.add_scatter(
                x=result.steps, y=values, mode="lines", line={"width": 0.8, "color": colour}, opacity=0.35,
                name=f"random, {name.rpartition(' ')[2]} ones’ steps", legendgroup=name, showlegend=draw == 0,
                hovertemplate="step %{x:,}: %{y:.4g}",
            )  # fmt: skip
        figure.add_scatter(
            x=result.steps, y=own, mode="lines", line={"width": 2.4, "color": colour}, name=name,
            hovertemplate="step %{x:,}: %{y:.4g}",
        )  # fmt: skip
    figure.add_scatter(
        x=result.steps, y=result.whole, mode="lines", line={"width": 1.8, "color": INK[theme], "dash": "dot"},
        name="all windows", hovertemplate="step %{x:,}: %{y:.4g}",
    )  # fmt: skip
    figure.update_xaxes(title_text="step")
    figure.update_yaxes(title_text=plotly_text(result.measure.replace("_", " ")))
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
    return figure


def retrained_lines(result: Retrained, *, theme: Theme = "light") -> go.Figure:
    """Draw each measure of a run that was made again, over its steps."""
    figure = go.Figure(layout=base_layout(theme))
    for place, (name, values) in enumerate(zip(result.measures, result.values, strict=True)):
        figure.add_scatter(
            x=result.steps, y=values, mode="lines", name=plotly_text(name.replace("_", " ")),
            line={"width": 1.6, "color": LINES[theme][place % len(LINES[theme])]},
            hovertemplate="step %{x:,}: %{y:.4g}",
        )  # fmt: skip
    figure.update_xaxes(title_text="step")
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"}, showlegend=True)
    return figure


def property_points(result: InfluenceProperties, *, theme: Theme = "light") -> go.Figure:
    """Draw the prediction of windows' help by each of their properties alone, with its interval, over training."""
    figure = go.Figure(layout=base_layout(theme))
    for place, name in enumerate(result.properties):
        values = result.alone[:, place]
        low, high = result.alone_intervals[:, place].T
        figure.add_scatter(
            x=[*result.parts], y=values, mode="markers", name=name,
            marker={"size": 8, "color": LINES[theme][place % len(LINES[theme])]},
            error_y={"type": "data", "symmetric": False, "array": high - values, "arrayminus": values - low},
            hovertemplate="%{x}: %{y:+.3f}",
        )  # fmt: skip
    figure.add_hline(y=0, line={"color": INK[theme], "width": 1, "dash": "dot"})
    figure.update_xaxes(title_text="part of training")
    figure.update_yaxes(title_text="help, root mean squares of a step")
    figure.update_layout(scattermode="group", legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
    return figure
