"""Scores of a rotary head over distances: one pair of tokens, and the mean of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from aotlens.plots.colours import INK, LINES, Theme, base_layout

if TYPE_CHECKING:
    from aotlens.circuits import DistanceProfile, Reach

#: So many frequencies have a line of their own; the others are one.
_FREQUENCIES = 4


def distance_curve(profile: DistanceProfile, *, theme: Theme = "light") -> go.Figure:
    """The score of one pair of tokens over distances, and what the frequencies of the largest amplitude add to it."""
    figure = go.Figure(layout=base_layout(theme))
    parts, order = profile.by_frequency, np.argsort(-profile.amplitude, kind="stable")
    for place, pair in enumerate(order[:_FREQUENCIES]):
        _line(
            figure, profile.distances, parts[pair], f"wavelength {2 * np.pi / profile.theta[pair]:.3g} tokens",
            LINES[theme][(place + 1) % len(LINES[theme])], 1.2,
        )  # fmt: skip
    if len(order) > _FREQUENCIES:
        rest = parts[order[_FREQUENCIES:]].sum(0)
        _line(figure, profile.distances, rest, f"{len(order) - _FREQUENCIES} other frequencies", INK[theme], 1.0, "dot")
    _line(figure, profile.distances, profile.scores, "score", LINES[theme][0], 2.4)
    return _titled(figure, f"score of {profile.destination} for {profile.source}, nats")


def reach_curve(result: Reach, *, theme: Theme = "light") -> go.Figure:
    """The mean score of a head over pairs of tokens at each distance."""
    figure = go.Figure(layout=base_layout(theme))
    _line(figure, result.distances, result.mean_scores, "mean score", LINES[theme][0], 2.4)
    figure.add_annotation(
        text=", ".join(f"{name} {share:.0%}" for name, share in result.shares.items()) + " of the variance",
        xref="paper", yref="paper", x=1, y=1.02, yanchor="bottom", showarrow=False, font={"color": INK[theme]},
    )  # fmt: skip
    return _titled(figure, "mean score over pairs of tokens, nats")


def _line(
    figure: go.Figure, x: np.ndarray, y: np.ndarray, name: str, colour: str, width: float, dash: str = "solid"
) -> None:
    line = {"color": colour, "width": width, "dash": dash}
    figure.add_trace(go.Scatter(x=x, y=y, name=name, mode="lines", line=line, hovertemplate="%{y:+.3f}"))


def _titled(figure: go.Figure, y_title: str) -> go.Figure:
    figure.update_xaxes(title_text="distance from destination back to source, tokens")
    figure.update_yaxes(title_text=y_title)
    figure.update_layout(hovermode="x unified", legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
    return figure
