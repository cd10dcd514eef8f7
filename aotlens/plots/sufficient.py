"""The share of what all heads do that a small set keeps, what is left without each of them, and Shapley values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from aotlens.conventions import head_name
from aotlens.plots.colours import INK, LINES, Theme, base_layout

if TYPE_CHECKING:
    from aotlens.heads import ShapleyValues, SufficientHeads

_SYMBOLS = {"necessary": "circle", "not necessary": "circle-open", "undecided": "circle-open-dot"}


def sufficient_points(result: SufficientHeads, *, theme: Theme = "light") -> go.Figure:
    """Draw the faithfulness of the set without each of its heads, and of the full model without it, with intervals;
    dotted, what was to be kept; at the left the set itself. A filled point is necessary, a ring is not, a ring with a
    dot is undecided."""
    names = list(map(head_name, result.heads))
    places = np.arange(1, len(names) + 1)
    low, high = result.interval
    layout = base_layout(
        theme, height=360,
        xaxis={"tickvals": [0, *places], "ticktext": ["the set", *names], "range": [-0.6, len(names) + 0.6],
               "zeroline": False, "title": "without head"},
        yaxis={"title": "faithfulness", "zeroline": True, "zerolinecolor": INK[theme]},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"}, showlegend=True,
    )  # fmt: skip
    figure = go.Figure(layout=layout)
    figure.add_hline(y=result.keep, line={"color": INK[theme], "width": 1, "dash": "dot"})
    _add(figure, "the set", [0], [result.faithfulness], [[low, high]], ["the set"], [""], LINES[theme][2])
    series = (
        ("the set without it", -0.12, result.within, result.within_intervals, result.necessary_within),
        ("the model without it", 0.12, result.without, result.without_intervals, result.necessary_in_model),
    )
    for index, (name, shift, values, intervals, verdicts) in enumerate(series):
        if names:
            _add(figure, name, places + shift, values, intervals, names, verdicts, LINES[theme][index])
    return figure


def shapley_points(result: ShapleyValues, *, theme: Theme = "light") -> go.Figure:
    """Draw each head's Shapley value with its interval, and what it adds before all other heads and after them."""
    names = [head_name(place) for place in np.ndindex(*result.values.shape)]
    places = np.arange(len(names))
    layout = base_layout(
        theme, height=360,
        xaxis={"tickvals": places, "ticktext": names, "range": [-0.6, len(names) - 0.4], "zeroline": False,
               "title": "head"},
        yaxis={"title": result.unit, "zeroline": True, "zerolinecolor": INK[theme]},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"}, showlegend=True,
    )  # fmt: skip
    figure = go.Figure(layout=layout)
    nothing = [""] * len(names)
    _add(figure, "Shapley value", places, result.values.ravel(), result.intervals, names, nothing, LINES[theme][0])
    series = (("alone", result.first, "triangle-up-open"), ("after all others", result.last, "triangle-down-open"))
    for index, (name, values, symbol) in enumerate(series, start=1):
        figure.add_scatter(
            x=places, y=values.ravel(), name=name, mode="markers", text=names,
            marker={"size": 8, "color": LINES[theme][index], "symbol": symbol},
            hovertemplate=f"{name}<br>%{{text}}<br>%{{y:+.4f}}<extra></extra>",
        )  # fmt: skip
    return figure


def _add(
    figure: go.Figure,
    name: str,
    x: Any,
    values: Any,
    intervals: Any,
    names: Sequence[str],
    verdicts: Sequence[str],
    colour: str,
) -> None:
    low, high = np.asarray(intervals, float).reshape(-1, 2).T
    y = np.asarray(values, float)
    texts = [f"{head}: {verdict}" if verdict else head for head, verdict in zip(names, verdicts, strict=True)]
    reach = "%{y:.3f} (%{customdata[0]:.3f} to %{customdata[1]:.3f})"
    figure.add_scatter(
        x=x, y=y, name=name, mode="markers", text=texts,
        marker={"size": 9, "color": colour, "symbol": [_SYMBOLS.get(verdict, "diamond") for verdict in verdicts]},
        error_y={
            "type": "data", "symmetric": False, "array": np.nan_to_num(high - y), "arrayminus": np.nan_to_num(y - low),
            "width": 0, "thickness": 1.2, "color": colour,
        },
        customdata=np.stack([low, high], -1),
        hovertemplate=f"{name}<br>%{{text}}<br>{reach}<extra></extra>",
    )  # fmt: skip
