"""Heads as points: any score against any other, so that what is rare stands apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Bool, Float

from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET_INK, Theme, base_layout
from aotlens.plots.labels import plotly_text

_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star", "pentagon")
#: Heads that are named beside their points, at most.
_MOST_NAMES = 24


def head_scatter(
    x: Float[np.ndarray, " head"],
    y: Float[np.ndarray, " head"],
    names: Sequence[str],
    labels: Sequence[str],
    *,
    titles: tuple[str, str],
    found: Bool[np.ndarray, " head"] | None = None,
    chosen: str | None = None,
    theme: Theme = "light",
) -> go.Figure:
    """One score of every head against another, a colour and a shape for each label; "mixed" is grey.

    Heads are named at their points while they are few. A point's customdata is its name; the chosen head has a ring.
    Heads that are not among the `found` ones are small and faint, so that the axes stay. Heads without one of the two
    numbers are left out.
    """
    kinds = sorted(set(labels), key=lambda label: (label == "mixed", -list(labels).count(label), label))
    known = np.isfinite(x) & np.isfinite(y)
    is_found = np.ones(len(names), dtype=bool) if found is None else found
    many = is_found.sum() > _MOST_NAMES
    traces = []
    for place, kind in enumerate(kinds):
        own = [i for i, label in enumerate(labels) if label == kind and known[i]]
        sizes = [10 if is_found[i] else 5 for i in own]
        colour = QUIET_INK[theme] if kind == "mixed" else LINES[theme][place % len(LINES[theme])]
        traces.append(
            go.Scatter(
                x=x[own], y=y[own], name=plotly_text(kind), customdata=[names[i] for i in own],
                text=[plotly_text(names[i]) if is_found[i] else "" for i in own], textposition="top center",
                mode="markers" if many else "markers+text",
                marker={"size": sizes, "opacity": [1.0 if is_found[i] else 0.35 for i in own],
                        "symbol": _SYMBOLS[place % len(_SYMBOLS)], "color": colour,
                        "line": {"width": 0.6, "color": BACKGROUND[theme]}},
                hovertemplate="<b>%{customdata}</b><br>" + plotly_text(titles[0]) + " %{x:.3f}<br>"
                + plotly_text(titles[1]) + " %{y:.3f}<extra>" + plotly_text(kind) + "</extra>",
            )
        )  # fmt: skip
    if chosen is not None and chosen in names and known[list(names).index(chosen)]:
        at = list(names).index(chosen)
        ring = {"size": 19, "symbol": "circle-open", "color": LINES[theme][1], "line": {"width": 2.5}}
        traces.append(go.Scatter(x=x[[at]], y=y[[at]], mode="markers", showlegend=False, hoverinfo="skip", marker=ring))
    return go.Figure(
        traces,
        base_layout(
            theme,
            xaxis={"title": {"text": plotly_text(titles[0])}, "zeroline": False},
            yaxis={"title": {"text": plotly_text(titles[1])}, "zeroline": False},
            legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "font": {"color": INK[theme]}},
            margin={"l": 8, "r": 8, "t": 44, "b": 8},
            hovermode="closest",
            showlegend=True,
        ),
    )
