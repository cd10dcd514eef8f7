"""The number of skip-trigrams of each kind, split by verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from aotlens.plots.colours import LINES, QUIET, QUIET_INK, Theme, base_layout

if TYPE_CHECKING:
    from aotlens.trigrams import Evidence, TrigramRows

#: Verdicts that say nothing, or no; drawn in grey.
_QUIET = ("not confirmed", "too rare", "not checked")


def verdicts(result: Evidence | TrigramRows, *, theme: Theme = "light") -> go.Figure:
    """Draw the number of rows of each kind, and of those that the text confirms: a bar a kind, a part a verdict."""
    frame = result.by_kind()
    colours = iter(LINES[theme])
    greys = iter((QUIET_INK[theme], QUIET[theme]))
    figure = go.Figure()
    for part in frame:
        numbers = frame[part]
        figure.add_bar(
            x=numbers, y=list(frame.index), orientation="h", name=part,
            text=[f"{number:,}" if number else "" for number in numbers], textposition="auto",
            marker={"color": next(greys if part in _QUIET else colours)},
            hovertemplate=f"%{{y}}: %{{x:,}} {part}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(base_layout(theme), barmode="stack", bargap=0.3)
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"})
    figure.update_xaxes(title={"text": "rows"}, rangemode="tozero")
    figure.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return figure
