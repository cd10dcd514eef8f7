"""Heads as feed-forward networks: errors by head, by width, against what the head does, and what replacing heads costs.

An error is Σ‖y − ŷ‖² / Σ‖y − ȳ‖²: 0 where an FFN of the token's own input does all that the head does, 1 where it does
no better than a constant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from aotlens.plots.colours import INK, LINES, QUIET_INK, Theme, base_layout, colorscale
from aotlens.plots.labels import plotly_text

_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")


def error_grid(
    errors: Float[np.ndarray, "layer head"],
    *,
    notes: Sequence[Sequence[str]] | None = None,
    title: str = "error of the FFN",
    theme: Theme = "light",
) -> go.Figure:
    """One cell a head, from 0 to 1 (what is above 1 has 1's colour); NaN cells, of heads not distilled, stay empty.

    `notes[layer][head]` is for the hover text. Raises `ValueError` where they do not fit.
    """
    if notes is not None and [len(row) for row in notes] != [errors.shape[1]] * errors.shape[0]:
        raise ValueError(f"error_grid: expected notes for {errors.shape[0]} × {errors.shape[1]} heads.")
    text = [["" if np.isnan(value) else f"{value:.2f}" for value in row] for row in errors]
    custom = (
        [["" for _ in row] for row in errors] if notes is None else [[plotly_text(n) for n in row] for row in notes]
    )
    figure = go.Figure(
        go.Heatmap(
            z=errors.astype(np.float32),
            zmin=0,
            zmax=1,
            x=[str(head) for head in range(errors.shape[1])],
            y=[str(layer) for layer in range(errors.shape[0])],
            text=text,
            texttemplate="%{text}",
            customdata=custom,
            colorscale=colorscale("sequential", theme),
            colorbar={"title": {"text": title, "side": "right"}, "thickness": 12, "outlinewidth": 0},
            hovertemplate="head %{y}.%{x}: <b>%{z:.3f}</b><br>%{customdata}<extra></extra>",
            xgap=2,
            ygap=2,
        )
    )
    figure.update_layout(base_layout(theme))
    figure.update_xaxes(title={"text": "head"}, showgrid=False, zeroline=False, type="category")
    figure.update_yaxes(title={"text": "layer"}, showgrid=False, zeroline=False, type="category")
    return figure


def error_by_width(
    widths: Sequence[int],
    means: Mapping[str, Float[np.ndarray, " width"]],
    intervals: Mapping[str, Float[np.ndarray, "width 2"]] | None = None,
    floors: Mapping[str, float] | None = None,
    *,
    theme: Theme = "light",
) -> go.Figure:
    """One line a model (or head): error against hidden units, which are spaced evenly; 0 is the linear map.

    `intervals` are drawn as bars, `floors` (the least error found by any means) as dotted lines. Raises `ValueError`
    for a line of another length.
    """
    labels = ["linear" if width == 0 else str(width) for width in widths]
    figure = go.Figure()
    for place, (name, values) in enumerate(means.items()):
        if len(values) != len(widths):
            raise ValueError(f"error_by_width: {name}: expected {len(widths)} values, one a width, got {len(values)}.")
        colour = LINES[theme][place % len(LINES[theme])]
        bars = None
        if intervals is not None and name in intervals:
            low, high = intervals[name].T
            bars = {"type": "data", "array": high - values, "arrayminus": values - low, "thickness": 1.2, "width": 4}
        figure.add_scatter(
            x=labels,
            y=values.astype(np.float32),
            error_y=bars,
            name=plotly_text(name),
            mode="lines+markers",
            line={"width": 1.8, "color": colour},
            marker={"symbol": _SYMBOLS[place % len(_SYMBOLS)], "size": 8},
            hovertemplate="%{x} hidden units: <b>%{y:.3f}</b>",
        )
        if floors is not None and name in floors:
            figure.add_hline(y=floors[name], line={"dash": "dot", "width": 1.2, "color": colour})
    figure.update_layout(base_layout(theme))
    figure.update_layout(hovermode="x unified", legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
    figure.update_layout(margin={"t": 40})
    figure.update_xaxes(title={"text": "hidden units"}, type="category", showgrid=False)
    figure.update_yaxes(title={"text": "held-out error"}, rangemode="tozero")
    return figure


def error_against(
    x: Float[np.ndarray, " point"],
    errors: Float[np.ndarray, " point"],
    names: Sequence[str],
    kinds: Sequence[str],
    *,
    intervals: Float[np.ndarray, "point 2"] | None = None,
    x_title: str,
    theme: Theme = "light",
) -> go.Figure:
    """One point a head; colour and shape by its kind (where it attends). `names` are for the hover text.

    Raises `ValueError` for arrays of different lengths.
    """
    if not len(x) == len(errors) == len(names) == len(kinds):
        raise ValueError(
            f"error_against: expected one of each, got {len(x)}, {len(errors)}, {len(names)}, {len(kinds)}."
        )
    figure = go.Figure()
    for place, kind in enumerate(dict.fromkeys(kinds)):
        chosen = np.array([k == kind for k in kinds])
        bars = None
        if intervals is not None:
            low, high = intervals[chosen].T
            bars = {"type": "data", "array": high - errors[chosen], "arrayminus": errors[chosen] - low, "width": 0,
                    "thickness": 1}  # fmt: skip
        figure.add_scatter(
            x=x[chosen].astype(np.float32),
            y=errors[chosen].astype(np.float32),
            error_y=bars,
            mode="markers",
            name=plotly_text(kind),
            text=[plotly_text(name) for name, c in zip(names, chosen, strict=True) if c],
            marker={
                "size": 9,
                "symbol": _SYMBOLS[place % len(_SYMBOLS)],
                "color": LINES[theme][place % len(LINES[theme])],
                "opacity": 0.85,
            },
            hovertemplate=f"%{{text}}<br>{plotly_text(x_title)}: %{{x:.3f}}<br>error: <b>%{{y:.3f}}</b>",
        )
    figure.update_layout(base_layout(theme))
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"}, margin={"t": 40})
    figure.update_xaxes(title={"text": x_title}, zeroline=False)
    figure.update_yaxes(title={"text": "held-out error"}, rangemode="tozero")
    return figure


def substitution_curves(
    sizes: Sequence[int],
    curves: Mapping[str, Float[np.ndarray, " size"]],
    spread: Mapping[str, Float[np.ndarray, "order size"]] | None = None,
    *,
    unit: str = "loss, nats a token",
    theme: Theme = "light",
) -> go.Figure:
    """What it costs to replace the first n heads of an order, one line an order; a band from the least to the greatest
    for several orders of one name (random ones). Raises `ValueError` for a curve of another length."""
    figure = go.Figure()
    x = list(sizes)
    for name, rows in (spread or {}).items():
        if rows.shape[1] != len(x):
            raise ValueError(f"substitution_curves: {name}: expected {len(x)} sizes, got {rows.shape[1]}.")
        figure.add_scatter(
            x=[*x, *x[::-1]], y=[*rows.max(0), *rows.min(0)[::-1]], fill="toself", mode="lines", hoverinfo="skip",
            line={"width": 0, "color": QUIET_INK[theme]}, opacity=0.35, name=plotly_text(name),
        )  # fmt: skip
    for place, (name, values) in enumerate(curves.items()):
        if len(values) != len(x):
            raise ValueError(f"substitution_curves: {name}: expected {len(x)} values, got {len(values)}.")
        figure.add_scatter(
            x=x, y=values.astype(np.float32), name=plotly_text(name), mode="lines+markers",
            line={"width": 1.8, "color": LINES[theme][place % len(LINES[theme])]},
            marker={"symbol": _SYMBOLS[place % len(_SYMBOLS)], "size": 8}, hovertemplate="%{y:+.4f}",
        )  # fmt: skip
    figure.update_layout(base_layout(theme))
    figure.update_layout(hovermode="x unified", margin={"t": 48})
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
    figure.update_xaxes(title={"text": "heads replaced"}, type="log", tickvals=x, showgrid=False)
    figure.update_yaxes(title={"text": f"added {unit}"}, zeroline=True, zerolinecolor=INK[theme], zerolinewidth=1)
    return figure


def learning_curves(
    tokens: Sequence[int],
    errors: Mapping[str, Float[np.ndarray, " evaluation"]],
    references: Mapping[str, float] | None = None,
    *,
    theme: Theme = "light",
) -> go.Figure:
    """Validation error as training goes on, one line an FFN, and levels to compare with (the linear map, the floor).

    Raises `ValueError` for a line of another length.
    """
    figure = go.Figure()
    for name, values in errors.items():
        if len(values) != len(tokens):
            raise ValueError(f"learning_curves: {name}: expected {len(tokens)} values, got {len(values)}.")
        figure.add_scatter(
            x=list(tokens), y=values.astype(np.float32), name=plotly_text(name), mode="lines", line={"width": 1.8},
            hovertemplate="%{y:.4f}",
        )  # fmt: skip
    for name, level in (references or {}).items():
        # In the legend, since beside its line the name would lie on the curves.
        figure.add_scatter(
            x=[0, tokens[-1]], y=[level, level], name=f"{plotly_text(name)} {level:.3f}", mode="lines",
            line={"dash": "dot", "width": 1.4, "color": INK[theme]}, hoverinfo="skip",
        )  # fmt: skip
    figure.update_layout(base_layout(theme))
    figure.update_layout(hovermode="x unified", margin={"t": 40})
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"}, showlegend=True)
    figure.update_xaxes(title={"text": "training tokens"}, rangemode="tozero", showgrid=False)
    figure.update_yaxes(title={"text": "error on validation text"}, rangemode="tozero")
    return figure
