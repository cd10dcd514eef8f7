"""Square matrices beside the scaled identities that they may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from aotlens.plots.colours import INK, Theme, base_layout, colorscale

_ACROSS, _DOWN = 0.1, 0.16  # gaps between maps, in shares of the figure


def scaled_identities(
    matrices: Mapping[str, Float[np.ndarray, "_ _"]], scales: Mapping[str, str], *, theme: Theme = "light"
) -> go.Figure:
    """A row a matrix: it, and the identity times the mean of its diagonal, on one colour scale with 0 in the middle.

    `scales` names each matrix's scale, `{"W_QK": "β"}`. Raises `ValueError` for no matrices, one that is not square,
    and one whose scale has no name.
    """
    if not matrices or set(matrices) != set(scales):
        raise ValueError(
            f"scaled_identities: expected a scale's name for each of {list(matrices)}, got {list(scales)}."
        )
    traces: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    titles: list[dict[str, Any]] = []
    height = (1 - _DOWN * (len(matrices) - 1)) / len(matrices)
    for row, (name, matrix) in enumerate(matrices.items()):
        if matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"scaled_identities: expected {name} square, got {list(matrix.shape)}.")
        scale = float(np.diagonal(matrix).mean())
        top = float(np.abs(matrix).max()) or 1.0
        low = 1 - (row + 1) * height - row * _DOWN
        width = (1 - _ACROSS) / 2
        pictures = {name: matrix, f"{scales[name]} I, {scales[name]} = {scale:.3g}": scale * np.eye(len(matrix))}
        for column, (title, values) in enumerate(pictures.items()):
            place = "" if not traces else str(len(traces) + 1)
            left = column * (width + _ACROSS)
            traces.append(
                {
                    "type": "heatmap", "z": values.astype(np.float32), "xaxis": f"x{place}", "yaxis": f"y{place}",
                    "zmin": -top, "zmax": top, "colorscale": colorscale("diverging", theme), "showscale": column == 1,
                    "colorbar": {"thickness": 10, "outlinewidth": 0, "len": height, "y": low + height / 2},
                    "hovertemplate": f"{title}<br>%{{y}}, %{{x}}<br><b>%{{z:.4f}}</b><extra></extra>",
                }
            )  # fmt: skip
            quiet = {"showgrid": False, "zeroline": False, "ticks": "", "showticklabels": False, "constrain": "domain"}
            axes[f"xaxis{place}"] = {**quiet, "domain": [left, left + width], "anchor": f"y{place}"}
            axes[f"yaxis{place}"] = {
                **quiet, "domain": [low, low + height], "anchor": f"x{place}", "autorange": "reversed",
                "scaleanchor": f"x{place}",
            }  # fmt: skip
            titles.append(
                {
                    "text": f"<b>{title}</b>", "x": left + width / 2, "y": low + height, "xref": "paper",
                    "yref": "paper",
                    "xanchor": "center", "yanchor": "bottom", "showarrow": False, "font": {"color": INK[theme]},
                }
            )  # fmt: skip
    layout = {**base_layout(theme, annotations=titles, margin={"l": 8, "r": 8, "t": 26, "b": 8}), **axes}
    return go.Figure(traces, layout)
