"""Entries of a circuit: a few rows and columns in full, or all of it in blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from aotlens.plots.colours import INK, Theme, base_layout, colorscale
from aotlens.plots.labels import plotly_text

#: The number of rows or columns up to which each has its label.
_ALL_LABELS = 48

#: Labels along an axis that has more.
_FEW_LABELS = 8


def matrix_map(
    values: Float[np.ndarray, "row column"],
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    *,
    quantity: str,
    row_title: str,
    column_title: str,
    shares: bool = False,
    theme: Theme = "light",
) -> go.Figure:
    """Draw a heat map, rows down and columns across, with zero in the middle of the scale and exact values on hover.

    With `shares`, values are shares of 1, and the scale goes from 0 to 1.
    Labels that read the same get their place in the map behind them. Up to 48 rows or columns are all labelled, of
    more some. The array goes to the browser as float32. Raises `ValueError` where labels and values don't fit.
    """
    if values.shape != (len(row_labels), len(column_labels)):
        raise ValueError(
            f"matrix_map: expected {len(row_labels)} × {len(column_labels)} values for these labels, got "
            f"{values.shape[0]} × {values.shape[1]}."
        )
    rows, columns = distinct(row_labels), distinct(column_labels)
    top = float(np.abs(values).max(initial=0.0)) or 1.0
    heatmap = go.Heatmap(
        z=values.astype(np.float32),
        x=columns,
        y=rows,
        zmin=0 if shares else -top,
        zmax=1 if shares else top,
        colorscale=colorscale("sequential" if shares else "diverging", theme),
        hovertemplate=f"{row_title}  %{{y}}<br>{column_title}  %{{x}}<br><b>%{{z:.4f}} {quantity}</b><extra></extra>",
        colorbar={"thickness": 10, "outlinewidth": 0, "title": {"text": quantity, "side": "right"}, "len": 1.0},
    )
    axis = {"type": "category", "showgrid": False, "ticks": "", "zeroline": False}
    angle = -60 if max(map(len, columns), default=0) > 3 else 0
    across = {**axis, **_ticks(columns, theme), "tickangle": angle, "title": {"text": column_title}}
    down = {**axis, **_ticks(rows, theme), "autorange": "reversed", "title": {"text": row_title}}
    return go.Figure(heatmap, layout=base_layout(theme, xaxis=across, yaxis=down))


def distinct(labels: Sequence[str]) -> list[str]:
    """Return labels for a category axis, on which two that read the same would be one."""
    count = Counter(labels)
    return [
        plotly_text(label) if count[label] == 1 else f"{plotly_text(label)} ({place})"
        for place, label in enumerate(labels)
    ]


def _ticks(labels: Sequence[str], theme: Theme) -> dict[str, object]:
    font = {"size": 11 if len(labels) <= 32 else 9, "color": INK[theme]}
    if len(labels) <= _ALL_LABELS:
        return {"dtick": 1, "tickfont": font}
    step = -(-len(labels) // _FEW_LABELS)
    return {"tickmode": "array", "tickvals": list(labels[::step]), "tickfont": font}
