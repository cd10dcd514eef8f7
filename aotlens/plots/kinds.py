"""How many of each kind, split by verdict."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Integer

from aotlens.plots.colours import LINES, QUIET, QUIET_INK, Theme, base_layout
from aotlens.plots.labels import plotly_text


def stacked_counts(
    counts: Integer[np.ndarray, "row part"],
    rows: Sequence[str],
    parts: Sequence[str],
    *,
    title: str,
    quiet: Sequence[str] = (),
    theme: Theme = "light",
) -> go.Figure:
    """A horizontal bar a row, in parts; the numbers stand in the bars. Parts in `quiet` are drawn in grey.

    Raises `ValueError` where counts and names don't fit.
    """
    if counts.shape != (len(rows), len(parts)):
        raise ValueError(
            f"stacked_counts: expected {len(rows)} × {len(parts)} counts for these names, got "
            f"{counts.shape[0]} × {counts.shape[1]}."
        )
    colours = iter(LINES[theme])
    greys = iter((QUIET_INK[theme], QUIET[theme]))
    figure = go.Figure()
    for index, part in enumerate(parts):
        numbers = counts[:, index]
        figure.add_bar(
            x=numbers, y=[plotly_text(row) for row in rows], orientation="h", name=plotly_text(part),
            text=[f"{number:,}" if number else "" for number in numbers], textposition="auto",
            marker={"color": next(greys if part in quiet else colours)},
            hovertemplate=f"%{{y}}: %{{x:,}} {plotly_text(part)}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(base_layout(theme), barmode="stack", bargap=0.3)
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"})
    figure.update_xaxes(title={"text": title}, rangemode="tozero")
    figure.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return figure
