"""The distortion of clouds of points by random projections, against the dimension that they project to."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int

from aotlens.plots.colours import INK, LINES, Theme, base_layout

_TICKS = [digit * 10.0**power for power in range(-4, 6) for digit in (1, 2, 5)]


def distortion_plot(
    n_points: Int[np.ndarray, " projection"],
    m: Int[np.ndarray, " projection"],
    distortion: Float[np.ndarray, " projection"],
    constant: float | int,
    *,
    theme: Theme = "light",
) -> go.Figure:
    """Draw ε against m on logarithmic axes, a colour for each size of cloud, and √(C · log N / m) with the fitted C.

    Raises `ValueError` for no projections and for a C that is not positive.
    """
    if len(m) == 0 or not constant > 0:
        raise ValueError(f"distortion_plot: expected projections and a positive C, got {len(m)} and C = {constant}.")
    figure = _clouds(n_points, m, distortion, "m = %{x}, ε = %{y:.3f}", theme)
    line = np.unique(m)
    for colour, size in _colours(n_points, theme):
        name = f"√(C · log {size} / m), C = {constant:.2f}"
        figure.add_trace(_line(line, np.sqrt(constant * np.log(size) / line), name, colour))
    figure.update_xaxes(title_text="m, dimensions after projection", tickvals=line, ticktext=[str(x) for x in line])
    figure.update_yaxes(title_text="ε, largest distortion of a squared distance", tickvals=_TICKS)
    return figure


def angle_plot(
    n_points: Int[np.ndarray, " projection"],
    distortion: Float[np.ndarray, " projection"],
    angle_error: Float[np.ndarray, " projection"],
    *,
    theme: Theme = "light",
) -> go.Figure:
    """Draw the largest error of a cosine against ε on logarithmic axes, and the bound 4ε/(1 − ε) where ε < 1.

    Raises `ValueError` for no projections.
    """
    if len(distortion) == 0:
        raise ValueError("angle_plot: expected projections, got none.")
    figure = _clouds(n_points, distortion, angle_error, "ε = %{x:.3f}, error %{y:.3f}", theme)
    epsilon = np.geomspace(distortion.min(), min(0.9, distortion.max()), 50)
    figure.add_trace(_line(epsilon, 4 * epsilon / (1 - epsilon), "4ε/(1 − ε)", INK[theme]))
    figure.update_xaxes(title_text="ε, largest distortion of a squared distance", tickvals=_TICKS)
    figure.update_yaxes(title_text="largest error of a cosine, |cos θ_f − cos θ|", tickvals=_TICKS)
    return figure


def _clouds(n_points: np.ndarray, x: np.ndarray, y: np.ndarray, hover: str, theme: Theme) -> go.Figure:
    figure = go.Figure(layout=base_layout(theme))
    for colour, size in _colours(n_points, theme):
        here = n_points == size
        figure.add_trace(
            go.Scatter(
                x=x[here],
                y=y[here],
                mode="markers",
                name=f"{size} points",
                marker={"color": colour},
                hovertemplate=hover,
            )
        )
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log")
    return figure


def _colours(n_points: np.ndarray, theme: Theme) -> list[tuple[str, int]]:
    sizes = np.unique(n_points).tolist()
    return [(LINES[theme][index % len(LINES[theme])], size) for index, size in enumerate(sizes)]


def _line(x: np.ndarray, y: np.ndarray, name: str, colour: str) -> go.Scatter:
    return go.Scatter(
        x=x, y=y, mode="lines", name=name, line={"color": colour, "dash": "dot", "width": 1.2}, hoverinfo="skip"
    )
