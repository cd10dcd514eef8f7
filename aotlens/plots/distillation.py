"""Heads as feed-forward networks, models side by side on one scale: errors by head, by width, against what the head
does, by kind of token and as training goes on, and what replacing heads costs.

An error is Σ‖y − ŷ‖² / Σ‖y − ȳ‖²: 0 where an FFN of the token's own input does all that the head does, 1 where it does
no better than a constant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float
from plotly.subplots import make_subplots

from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET_INK, Theme, base_layout, colorscale
from aotlens.plots.labels import plotly_text

_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")
_DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True, kw_only=True, eq=False)
class ErrorGrid:
    """One model's heads."""

    key: str
    """For clicks."""
    name: str
    errors: Float[np.ndarray, "layer head"]
    """NaN: not distilled."""
    notes: Sequence[Sequence[str]]
    """`[layer][head]`, for the hover text."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cloud:
    """One model's heads as points."""

    key: str
    name: str
    heads: Sequence[tuple[int, int]]
    errors: Float[np.ndarray, " head"]
    intervals: Float[np.ndarray, "head 2"]
    kinds: Sequence[str]
    x: Sequence[Float[np.ndarray, " head"]]
    """A coordinate for each of the pictures."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Costs:
    """What replacing the first n heads of an order costs one model."""

    name: str
    sizes: Sequence[int]
    curves: Mapping[str, Float[np.ndarray, " size"]]
    random: Float[np.ndarray, "order size"]


def error_grids(
    grids: Sequence[ErrorGrid], chosen: tuple[str, int, int] | None = None, *, theme: Theme = "light"
) -> go.Figure:
    """A grid a model, layer 0 on top, all cells of one height and on one scale from 0 to 1 (above 1: 1's colour).

    A point's customdata is [key, layer, head, note]; the chosen head has a frame.
    """
    deepest = max(grid.errors.shape[0] for grid in grids)
    figure = make_subplots(
        1, len(grids), column_widths=[grid.errors.shape[1] for grid in grids], horizontal_spacing=0.12 / len(grids)
    )
    for place, grid in enumerate(grids, 1):
        n_layers, n_heads = grid.errors.shape
        custom = [[[grid.key, i, j, plotly_text(grid.notes[i][j])] for j in range(n_heads)] for i in range(n_layers)]
        figure.add_heatmap(
            z=grid.errors.astype(np.float32), x=[str(j) for j in range(n_heads)],
            y=[str(i) for i in range(n_layers)], customdata=custom, coloraxis="coloraxis", xgap=2, ygap=2,
            text=[["" if np.isnan(value) else f"{value:.2f}" for value in row] for row in grid.errors],
            texttemplate="%{text}", hovertemplate=f"{plotly_text(grid.name)} %{{y}}.%{{x}}<br>error <b>%{{z:.3f}}</b>"
            "<br>%{customdata[3]}<extra></extra>", row=1, col=place, hoverongaps=False,
        )  # fmt: skip
        low = 1 - n_layers / deepest
        figure.update_yaxes(
            autorange="reversed", type="category", domain=[low, 1], showgrid=False, zeroline=False, col=place, row=1
        )
        figure.update_xaxes(type="category", side="bottom", showgrid=False, zeroline=False, col=place, row=1)
        axis = figure.get_subplot(1, place)
        figure.add_annotation(
            text=f"<b>{plotly_text(grid.name)}</b>", x=sum(axis.xaxis.domain) / 2, y=1, xref="paper", yref="paper",
            xanchor="center",
            yanchor="bottom", showarrow=False, yshift=4,
        )  # fmt: skip
        if chosen is not None and chosen[0] == grid.key:
            figure.add_shape(
                type="rect", x0=chosen[2] - 0.47, x1=chosen[2] + 0.47, y0=chosen[1] - 0.45, y1=chosen[1] + 0.45,
                line={"color": LINES[theme][1], "width": 3}, row=1, col=place,
            )  # fmt: skip
    _lay_out(figure, theme)
    figure.update_layout(
        coloraxis={
            "colorscale": colorscale("sequential", theme), "cmin": 0, "cmax": 1,
            "colorbar": {"title": {"text": "held-out error", "side": "right"}, "thickness": 12, "outlinewidth": 0},
        },
        margin={"t": 30},
    )  # fmt: skip
    figure.update_xaxes(title={"text": "head", "standoff": 4})
    figure.update_yaxes(title={"text": "layer"}, col=1)
    return figure


def width_profiles(
    categories: Sequence[str],
    n_lines: int,
    means: Mapping[str, Float[np.ndarray, " category"]],
    intervals: Mapping[str, Float[np.ndarray, "category 2"]],
    head: tuple[str, Float[np.ndarray, " category"]] | None = None,
    *,
    theme: Theme = "light",
) -> go.Figure:
    """Mean error over a model's heads at each width, and beside them what else was tried; NaN where it was not.

    The first `n_lines` of the categories are widths, joined by a line; the others stand alone. `head` is one more line.
    The picture reaches from 0 to above the largest mean, at least to 1: an interval over two or three heads may be many
    times as long, and its bar then leaves the picture. Raises `ValueError` for a line of another length.
    """
    figure = go.Figure()
    colours = LINES[theme]
    series = [(name, values, colours[k % len(colours)], "solid") for k, (name, values) in enumerate(means.items())]
    if head is not None:
        series.append((*head, INK[theme], "dot"))
    for place, (name, values, colour, dash) in enumerate(series):
        _require_length(name, values, len(categories))
        bars = None
        if name in intervals:
            low, high = intervals[name].T
            bars = {"type": "data", "array": high - values, "arrayminus": values - low, "thickness": 1.2, "width": 4}
        for part in (slice(0, n_lines), slice(n_lines, None)):
            joined = part.start == 0
            figure.add_scatter(
                x=list(categories[part]), y=values[part].astype(np.float32), name=plotly_text(name), legendgroup=name,
                mode="lines+markers" if joined else "markers", showlegend=joined,
                error_y=None if bars is None else {**bars, "array": bars["array"][part],
                                                   "arrayminus": bars["arrayminus"][part]},
                line={"width": 1.8, "color": colour, "dash": dash}, connectgaps=True,
                marker={"symbol": _symbol(place) + ("" if joined else "-open"), "size": 9, "color": colour},
                hovertemplate="%{y:.3f}",
            )  # fmt: skip
    _lay_out(figure, theme)
    figure.update_layout(hovermode="x unified", legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"})
    figure.update_layout(margin={"t": 40})
    figure.update_xaxes(
        type="category", categoryorder="array", categoryarray=list(categories), showgrid=False,
        range=[-0.4, len(categories) - 0.6],
    )  # fmt: skip
    figure.add_vline(x=n_lines - 0.5, line={"width": 1, "dash": "dot", "color": QUIET_INK[theme]})
    known = np.concatenate([values[np.isfinite(values)] for _, values, _, _ in series])
    figure.update_yaxes(title={"text": "held-out error"}, range=[0, 1.07 * max(1.0, float(known.max(initial=0.0)))])
    figure.update_xaxes(tickangle=0)
    return figure


def head_clouds(
    clouds: Sequence[Cloud],
    titles: Sequence[str],
    chosen: tuple[str, int, int] | None = None,
    *,
    kinds: Sequence[str],
    theme: Theme = "light",
) -> go.Figure:
    """Error against each of several quantities: colour is where a head attends, shape its model, bars the interval.

    `kinds` are all kinds that a point can be of, in the order of the legend: each has its colour whatever else is
    there, the last is grey. A point's customdata is [key, layer, head]; the chosen head has a ring.
    """
    figure = make_subplots(1, len(titles), shared_yaxes=True, horizontal_spacing=0.04)
    colours = {kind: LINES[theme][place % len(LINES[theme])] for place, kind in enumerate(kinds)}
    colours[kinds[-1]] = QUIET_INK[theme]
    for column, title in enumerate(titles, 1):
        for place, cloud in enumerate(clouds):
            low, high = cloud.intervals.T
            figure.add_scatter(
                x=cloud.x[column - 1].astype(np.float32), y=cloud.errors.astype(np.float32), mode="markers",
                showlegend=False, row=1, col=column,
                error_y={"type": "data", "array": high - cloud.errors, "arrayminus": cloud.errors - low, "width": 0,
                         "thickness": 0.8, "color": QUIET_INK[theme]},
                customdata=[[cloud.key, *head] for head in cloud.heads],
                text=[f"{plotly_text(cloud.name)} {i}.{j}, {kind}"
                      for (i, j), kind in zip(cloud.heads, cloud.kinds, strict=True)],
                marker={"size": 9, "symbol": _symbol(place), "color": [colours[kind] for kind in cloud.kinds],
                        "line": {"width": 0.6, "color": BACKGROUND[theme]}},
                hovertemplate="<b>%{text}</b><br>" + plotly_text(title) + " %{x:.2f}, error %{y:.3f}<extra></extra>",
            )  # fmt: skip
            for k, head in enumerate(cloud.heads):
                if chosen == (cloud.key, *head):
                    figure.add_scatter(
                        x=[cloud.x[column - 1][k]], y=[cloud.errors[k]], mode="markers", showlegend=False,
                        hoverinfo="skip", row=1, col=column,
                        marker={"size": 17, "symbol": "circle-open", "color": LINES[theme][1], "line": {"width": 2.5}},
                    )  # fmt: skip
        figure.update_xaxes(title={"text": plotly_text(title)}, zeroline=False, row=1, col=column)
    used = [kind for kind in kinds if any(kind in cloud.kinds for cloud in clouds)]
    legend = [(kind, "circle", colours[kind]) for kind in used]
    if len(clouds) > 1:
        legend += [(cloud.name, f"{_symbol(k)}-open", INK[theme]) for k, cloud in enumerate(clouds)]
    for name, symbol, colour in legend:
        figure.add_scatter(
            x=[None], y=[None], mode="markers", name=plotly_text(name), row=1, col=1,
            marker={"size": 9, "symbol": symbol, "color": colour},
        )  # fmt: skip
    _lay_out(figure, theme)
    figure.update_layout(
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "itemclick": False, "itemdoubleclick": False},
        margin={"t": 44}, hovermode="closest",
    )  # fmt: skip
    figure.update_yaxes(title={"text": "held-out error"}, rangemode="tozero", row=1, col=1)
    return figure


def cost_curves(costs: Sequence[Costs], *, unit: str = "loss, nats a token", theme: Theme = "light") -> go.Figure:
    """A picture a model, on one scale: added loss against how many heads are replaced; a band for random orders.

    Raises `ValueError` for a curve of another length.
    """
    figure = make_subplots(
        1, len(costs), shared_yaxes=True, horizontal_spacing=0.03,
        subplot_titles=[plotly_text(cost.name) for cost in costs],
    )  # fmt: skip
    for column, cost in enumerate(costs, 1):
        x = list(cost.sizes)
        figure.add_scatter(
            x=[*x, *x[::-1]], y=[*cost.random.max(0), *cost.random.min(0)[::-1]], fill="toself", mode="lines",
            hoverinfo="skip", line={"width": 0, "color": QUIET_INK[theme]}, opacity=0.35, name="FFNs, random orders",
            legendgroup="random", showlegend=column == 1, row=1, col=column,
        )  # fmt: skip
        for place, (name, values) in enumerate(cost.curves.items()):
            _require_length(name, values, len(x))
            figure.add_scatter(
                x=x, y=values.astype(np.float32), name=plotly_text(name), legendgroup=name, showlegend=column == 1,
                mode="lines+markers", row=1, col=column, hovertemplate="%{y:+.3f}",
                line={"width": 1.8, "color": LINES[theme][place], "dash": _DASHES[place % 4]},
                marker={"size": 7, "symbol": ("circle", "diamond", "square", "x")[place % 4]},
            )  # fmt: skip
        figure.update_xaxes(type="log", tickvals=x, showgrid=False, title={"text": "heads replaced"}, row=1, col=column)
    _lay_out(figure, theme)
    figure.update_layout(
        hovermode="x unified", margin={"t": 64}, legend={"orientation": "h", "y": 1.1, "yanchor": "bottom"}
    )
    figure.update_annotations(font={"size": 12}, yshift=2)
    figure.update_yaxes(zeroline=True, zerolinecolor=INK[theme], zerolinewidth=1)
    figure.update_yaxes(title={"text": f"added {unit}"}, row=1, col=1)
    return figure


def class_bars(
    names: Sequence[str],
    errors: Float[np.ndarray, " kind"],
    shares: Float[np.ndarray, " kind"],
    of_error: Float[np.ndarray, " kind"],
    *,
    theme: Theme = "light",
) -> go.Figure:
    """Error among each kind of token; on the bars, which share of tokens and of the squared error they are."""
    figure = go.Figure(
        go.Bar(
            y=list(names), x=errors.astype(np.float32), orientation="h", marker={"color": LINES[theme][0]},
            text=[f"{_percent(share)} of tokens, {_percent(part)} of the error"
                  for share, part in zip(shares, of_error, strict=True)],
            textposition="outside", cliponaxis=False,
            hovertemplate="%{y}: error <b>%{x:.3f}</b><br>%{text}<extra></extra>",
        )
    )  # fmt: skip
    _lay_out(figure, theme)
    figure.update_xaxes(
        title={"text": "error among tokens of the kind"}, range=[0, 2.4 * max(float(errors.max()), 1e-6)]
    )
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
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
        _require_length(name, values, len(tokens))
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
    _lay_out(figure, theme)
    figure.update_layout(hovermode="x unified", margin={"t": 40})
    figure.update_layout(legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"}, showlegend=True)
    figure.update_xaxes(title={"text": "training tokens"}, rangemode="tozero", showgrid=False)
    figure.update_yaxes(title={"text": "error on validation text"}, rangemode="tozero")
    return figure


def _require_length(name: str, values: np.ndarray, n: int) -> None:
    if len(values) != n:
        raise ValueError(f"{name}: expected {n} values, got {len(values)}.")


def _symbol(place: int) -> str:
    return _SYMBOLS[place % len(_SYMBOLS)]


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 or share == 0 else "<1%"


def _lay_out(figure: go.Figure, theme: Theme) -> None:
    """The shared look, on every axis."""
    layout = base_layout(theme)
    axes = {name: layout.pop(name) for name in ("xaxis", "yaxis")}
    figure.update_layout(layout)
    figure.update_xaxes(axes["xaxis"])
    figure.update_yaxes(axes["yaxis"])
