"""A few attention maps side by side, each with a title."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float
from plotly.subplots import make_subplots

from aotlens.plots.colours import QUIET_INK, Theme, base_layout, colorscale
from aotlens.plots.labels import axis_labels, plotly_text


def pattern_gallery(
    patterns: Sequence[Float[np.ndarray, ...]],
    titles: Sequence[str],
    str_tokens: Sequence[Sequence[str]],
    *,
    columns: int = 3,
    theme: Theme = "light",
) -> go.Figure:
    """Draw heatmaps in a grid, queries down and keys across, all on one scale from 0 to 1.

    `str_tokens` has the tokens of each pattern. Raises `ValueError` for no patterns, and names that don't fit them.
    """
    if not patterns or not len(patterns) == len(titles) == len(str_tokens):
        raise ValueError(
            "pattern_gallery: expected as many titles and token lists as patterns, at least one, got "
            f"{len(patterns)}, {len(titles)}, {len(str_tokens)}."
        )
    columns = min(columns, len(patterns))
    rows = -(-len(patterns) // columns)
    figure = make_subplots(
        rows=rows, cols=columns, subplot_titles=[plotly_text(title) for title in titles], horizontal_spacing=0.12,
        vertical_spacing=0.16 / rows + 0.06,
    )  # fmt: skip
    for index, (pattern, tokens) in enumerate(zip(patterns, str_tokens, strict=True)):
        if pattern.shape != (len(tokens), len(tokens)):
            raise ValueError(f"pattern_gallery: expected {len(tokens)} × {len(tokens)} values, got {pattern.shape}.")
        labels = axis_labels(tokens)
        figure.add_trace(
            go.Heatmap(
                z=pattern.astype(np.float32), x=labels, y=labels, coloraxis="coloraxis",
                hovertemplate="query  %{y}<br>key  %{x}<br><b>attention %{z:.4f}</b><extra></extra>",
            ),
            row=index // columns + 1, col=index % columns + 1,
        )  # fmt: skip
    figure.update_layout(base_layout(theme))
    axis = {"type": "category", "showgrid": False, "ticks": "", "tickfont": {"size": 8, "color": QUIET_INK[theme]},
            "dtick": 1, "automargin": True}  # fmt: skip
    figure.update_xaxes(**axis, tickangle=-90)
    figure.update_yaxes(**axis, autorange="reversed")
    figure.update_layout(
        coloraxis={"colorscale": colorscale("sequential", theme), "cmin": 0, "cmax": 1,
                   "colorbar": {"title": {"text": "attention", "side": "right"}, "thickness": 10}},
        height=360 * rows,
    )  # fmt: skip
    return figure
