"""A number of every head with its interval: points, layers across."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from aotlens.conventions import head_name
from aotlens.plots.colours import INK, LINES, QUIET_INK, Theme, base_layout

MOST_NAMED = 40


def head_points(
    values: Float[np.ndarray, "layer head"],
    intervals: Float[np.ndarray, "layer head 2"],
    *,
    quantity: str,
    theme: Theme = "light",
) -> go.Figure:
    """Draw a point a head with its interval, heads of a layer side by side; filled where the interval leaves out 0. NaN
    is left out. `quantity` is the axis's title. Up to `MOST_NAMED` heads are named beside their points."""
    n_layers, n_heads = values.shape
    layers, heads = np.indices(values.shape)
    x = (layers + (heads - (n_heads - 1) / 2) * (0.7 / max(n_heads, 2))).ravel()
    names = np.array(list(map(head_name, np.ndindex(n_layers, n_heads))))
    low, high = intervals.reshape(-1, 2).T
    apart, y = (low > 0) | (high < 0), values.ravel()
    axis = {"tickvals": list(range(n_layers)), "range": [-0.5, n_layers - 0.5], "zeroline": False, "title": "layer"}
    layout = base_layout(
        theme, height=360, xaxis=axis, yaxis={"title": quantity, "zeroline": True, "zerolinecolor": INK[theme]},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"}, showlegend=True,
    )  # fmt: skip
    figure = go.Figure(layout=layout)
    sorts = ((apart, "the interval leaves out 0", "circle"), (~apart, "it does not", "circle-open"))
    for group, name, symbol in sorts:
        group = group & np.isfinite(y)
        figure.add_scatter(
            x=x[group], y=y[group], mode="markers+text" if len(names) <= MOST_NAMED else "markers", text=names[group],
            name=name, textposition="middle right", textfont={"size": 10, "color": QUIET_INK[theme]},
            marker={"size": 8, "color": LINES[theme][0], "symbol": symbol},
            error_y={
                "type": "data", "symmetric": False, "array": (high - y)[group], "arrayminus": (y - low)[group],
                "width": 0, "thickness": 1.2, "color": LINES[theme][0],
            },
            customdata=np.stack([low[group], high[group]], -1),
            hovertemplate="head %{text}: %{y:.3g} (%{customdata[0]:.3g} to %{customdata[1]:.3g})<extra></extra>",
        )  # fmt: skip
    return figure
