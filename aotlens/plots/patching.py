"""What patching a cell restores, cell by cell, and how well a gradient foretells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from aotlens.plots.colours import INK, LINES, Theme, base_layout
from aotlens.plots.labels import glyphs
from aotlens.plots.matrix import matrix_map

if TYPE_CHECKING:
    from aotlens.patching import Attribution, Patched


def patched_map(result: Patched, *, theme: Theme = "light") -> go.Figure:
    """The restored share of every cell: layers down, positions or heads across; of heads by position, heads down."""
    share = result.restored
    n_layers = len(share)
    if share.ndim == 3:
        rows = [f"{layer}.{head}" for layer, head in np.ndindex(*share.shape[:2])]
    else:
        rows = [str(layer) for layer in range(n_layers)]
    values = share.reshape(len(rows), -1)
    if result.axes[-1] == "position":
        words = result.str_tokens or ("",) * values.shape[1]
        columns = [f"{at} {glyphs(word)}".strip() for at, word in enumerate(words)]
    else:
        columns = [str(head) for head in range(values.shape[1])]
    return matrix_map(
        values, rows, columns, quantity=f"of the clean {result.metric.replace('_', ' ')}", theme=theme,
        row_title="head" if share.ndim == 3 else "layer", column_title=result.axes[-1],
    )  # fmt: skip


def attribution_points(result: Attribution, *, theme: Theme = "light") -> go.Figure:
    """The patched cells, a point each: the estimate across and the exact change up; dotted where both are equal."""
    x, y = result.estimated, result.exact
    names = [
        ", ".join(f"{axis} {at}" for axis, at in zip(result.axes, cell, strict=True))
        for cell in result.checked.tolist()
    ]
    reach = [float(min(x.min(), y.min(), 0)), float(max(x.max(), y.max(), 0))]
    layout = base_layout(
        theme, height=360,
        xaxis={"title": f"estimated change, {result.unit}", "zeroline": True, "zerolinecolor": INK[theme]},
        yaxis={"title": f"exact change, {result.unit}", "zeroline": True, "zerolinecolor": INK[theme]},
    )  # fmt: skip
    figure = go.Figure(layout=layout)
    figure.add_scatter(
        x=reach, y=reach, mode="lines", line={"color": INK[theme], "width": 1, "dash": "dot"}, hoverinfo="skip",
        showlegend=False,
    )  # fmt: skip
    figure.add_scatter(
        x=x, y=y, mode="markers", text=names, showlegend=False, marker={"size": 9, "color": LINES[theme][0]},
        hovertemplate="%{text}<br>estimated %{x:.4f}<br>exact %{y:.4f}<extra></extra>",
    )  # fmt: skip
    return figure
