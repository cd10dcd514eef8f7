"""How much random projections distort clouds of points, against the dimension that they project to."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Int

from aotlens.plots.colours import LINES, Theme, base_layout


def distortion_plot(
    n_points: Int[np.ndarray, " projection"],
    m: Int[np.ndarray, " projection"],
    distortion: Float[np.ndarray, " projection"],
    constant: float | int,
    *,
    theme: Theme = "light",
) -> go.Figure:
    """ε against m on logarithmic axes, a colour for each size of cloud, and √(C · log N / m) with the fitted C.

    Raises `ValueError` for no projections and for a C that is not positive.
    """
    if len(m) == 0 or not constant > 0:
        raise ValueError(f"distortion_plot: expected projections and a positive C, got {len(m)} and C = {constant}.")
    figure = go.Figure(layout=base_layout(theme))
    sizes = np.unique(n_points)
    for colour, size in zip(np.resize(np.array(LINES[theme]), len(sizes)), sizes, strict=True):
        here = n_points == size
        figure.add_trace(
            go.Scatter(x=m[here], y=distortion[here], mode="markers", name=f"{size} points", marker={"color": colour},
                       hovertemplate="m = %{x}, ε = %{y:.3f}")
        )  # fmt: skip
        line = np.unique(m)
        figure.add_trace(
            go.Scatter(x=line, y=np.sqrt(constant * np.log(size) / line), mode="lines", showlegend=False,
                       line={"color": colour, "dash": "dot", "width": 1.2}, hoverinfo="skip")
        )  # fmt: skip
    figure.update_xaxes(type="log", title_text="m, dimensions after projection")
    figure.update_yaxes(type="log", title_text="ε, largest distortion of a squared distance")
    return figure
