"""The pieces that figures are built from: labels, a matrix with labels, texts in cells, points of heads with intervals,
lines over seeds in their bands, and the axes, legends and colour bars around them."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float, Float64, Integer, UInt8

from aotlens.conventions import glyphs, head_name
from aotlens.plots.colours import INK, LINES, QUIET_INK, Scale, Theme, base_layout, colorscale, lookup

#: The number of rows or columns up to which each has its label, and the labels along an axis that has more.
_ALL_LABELS, _FEW_LABELS = 48, 8
#: The number of heads up to which they are named at their points.
MOST_NAMED = 40
_SHADES = 256

#: A legend in one line above the figure.
LEGEND: Final[dict[str, Any]] = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}
#: The axis of a heat map, with a label for each row or column.
CELL_AXIS: Final[dict[str, Any]] = {"type": "category", "showgrid": False, "ticks": "", "zeroline": False}


def is_whitespace(token: str) -> bool:
    """Return whether every character of the token is whitespace."""
    return bool(token) and token.isspace()


def plotly_text(text: str) -> str:
    """Escape text for plotly, whose labels read a subset of HTML; `<b>` is a token like another."""
    return html.escape(text, quote=False)


def spaced(name: str) -> str:
    """Write a name for a label: `"previous_token"` is `previous token`, escaped for plotly."""
    return plotly_text(name.replace("_", " "))


def axis_labels(str_tokens: Sequence[str]) -> list[str]:
    """Return one distinct label per position, for a category axis: the token, then its position."""
    return [f"{plotly_text(glyphs(token))}  {position}" for position, token in enumerate(str_tokens)]


def distinct(labels: Sequence[str]) -> list[str]:
    """Return labels for a category axis, on which two that read the same would be one."""
    count = Counter(labels)
    return [
        plotly_text(label) if count[label] == 1 else f"{plotly_text(label)} ({place})"
        for place, label in enumerate(labels)
    ]


def names_of_heads(shape: Sequence[int]) -> list[str]:
    """Return the name of each head of `[layer, head]`, in order."""
    return list(map(head_name, np.ndindex(*shape)))


def line_colour(theme: Theme, place: int) -> str:
    """Return the colour of the line at this place, in turn."""
    return LINES[theme][place % len(LINES[theme])]


def faint(colour: str, alpha: float) -> str:
    """Return a colour with so much of its opacity."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def colour_bar(quantity: str, **options: Any) -> dict[str, Any]:
    """Return a thin colour bar with its title upright beside it."""
    return {"thickness": 10, "outlinewidth": 0, "title": {"text": quantity, "side": "right"}, **options}


def axes(
    theme: Theme,
    x_title: str,
    y_title: str,
    *,
    xaxis: Mapping[str, Any] | None = None,
    yaxis: Mapping[str, Any] | None = None,
    **layout: Any,
) -> go.Figure:
    """Return a figure without traces, with titled axes and the legend above; `layout` is added to it."""
    x, y = {"title": {"text": x_title}, **(xaxis or {})}, {"title": {"text": y_title}, **(yaxis or {})}
    return go.Figure(layout=base_layout(theme, xaxis=x, yaxis=y, **{"legend": LEGEND, **layout}))


def style_panels(figure: go.Figure, theme: Theme) -> go.Figure:
    """Give a figure of several panels the shared look, on every axis."""
    layout = base_layout(theme)
    xaxis, yaxis = layout.pop("xaxis"), layout.pop("yaxis")
    return figure.update_layout(layout).update_xaxes(xaxis).update_yaxes(yaxis)


def add_level(figure: go.Figure, level: float, text: str, theme: Theme, **place: Any) -> None:
    """Draw a dotted level to compare with, and its name at its right end."""
    figure.add_hline(
        y=level, line={"dash": "dot", "width": 1.2, "color": INK[theme]}, annotation_position="top right",
        annotation={"text": text, "font": {"size": 11, "color": INK[theme]}}, **place,
    )  # fmt: skip


def error_bars(values: Any, low: Any, high: Any, **look: Any) -> dict[str, Any]:
    """Return the bars from `low` to `high` around values."""
    return {"type": "data", "symmetric": False, "array": high - values, "arrayminus": values - low, **look}


def band(x: Any, low: Any, high: Any, colour: str, group: str) -> go.Scatter:
    """Return the band from `low` to `high` behind a line of the same legend group."""
    return go.Scatter(
        x=np.concatenate([x, x[::-1]]), y=np.concatenate([high, low[::-1]]), fill="toself", fillcolor=colour,
        opacity=0.16, line={"width": 0}, mode="lines", hoverinfo="skip", showlegend=False, legendgroup=group,
    )  # fmt: skip


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
        colorbar=colour_bar(quantity, len=1.0),
    )
    angle = -60 if max(map(len, columns), default=0) > 3 else 0
    across = {**CELL_AXIS, **_ticks(columns, theme), "tickangle": angle, "title": {"text": column_title}}
    down = {**CELL_AXIS, **_ticks(rows, theme), "autorange": "reversed", "title": {"text": row_title}}
    return go.Figure(heatmap, layout=base_layout(theme, xaxis=across, yaxis=down))


def _ticks(labels: Sequence[str], theme: Theme) -> dict[str, object]:
    font = {"size": 11 if len(labels) <= 32 else 9, "color": INK[theme]}
    if len(labels) <= _ALL_LABELS:
        return {"dtick": 1, "tickfont": font}
    step = -(-len(labels) // _FEW_LABELS)
    return {"tickmode": "array", "tickvals": list(labels[::step]), "tickfont": font}


def head_map(values: np.ndarray, quantity: str, theme: Theme, *, shares: bool = False) -> go.Figure:
    """Draw `values[layer, head]`, layers down and heads across; `shares` are of 1."""
    layers, heads = ([str(number) for number in range(n)] for n in values.shape)
    return matrix_map(
        values, layers, heads, quantity=quantity, row_title="layer", column_title="head", shares=shares, theme=theme
    )


def cell_texts(
    z: Any, texts: Any, theme: Theme, *, x: Any, y: Any, low: float, high: float, scale: Scale = "sequential",
    size: int = 12,
) -> go.Scatter:  # fmt: skip
    """Return a trace with a text in the middle of each cell of a heat map of `z` between `low` and `high`, `[y, x]`.

    Black or white by WCAG's contrast ratio, which is at least 4.58; plotly's own choice between white and dark grey
    goes below 3.5 on middle blues. Pointing and clicking go through to the heat map.
    """
    z, texts = np.asarray(z, dtype=np.float64), np.asarray(texts, dtype=object)
    share = np.nan_to_num((np.clip(z, low, high) - low) / (high - low) if high > low else np.zeros_like(z))
    colours = lookup(scale, theme, _SHADES)[np.rint(share * (_SHADES - 1)).astype(int)]
    columns, rows = np.meshgrid(np.asarray(x, dtype=object), np.asarray(y, dtype=object))
    inks = np.where(luminance(colours) > _EQUAL, "#000000", "#ffffff")
    return go.Scatter(
        x=columns.ravel(), y=rows.ravel(), text=texts.ravel(), mode="text", hoverinfo="skip", showlegend=False,
        textfont={"color": inks.ravel(), "size": size}, cliponaxis=False,
    )  # fmt: skip


#: The luminance on which black and white have the same contrast: (1 + .05) ÷ (l + .05) = (l + .05) ÷ .05.
_EQUAL = (1.05 * 0.05) ** 0.5 - 0.05


def luminance(colours: UInt8[np.ndarray, "*cells 3"]) -> Float64[np.ndarray, "*cells"]:
    """Return the relative luminance of sRGB colours, 0 to 1 (WCAG 2.2)."""
    channels = colours / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    luminances: Float64[np.ndarray, "*cells"] = linear @ np.array([0.2126, 0.7152, 0.0722])
    return luminances


def head_places(n_layers: int, n_heads: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Return where heads are on an axis of layers, those of a layer side by side, and that axis."""
    layers, heads = np.indices((n_layers, n_heads))
    x = (layers + (heads - (n_heads - 1) / 2) * (0.7 / max(n_heads, 2))).ravel()
    return x, {"tickvals": list(range(n_layers)), "range": [-0.5, n_layers - 0.5], "zeroline": False}


def head_points(
    values: Float[np.ndarray, "layer head"],
    intervals: Float[np.ndarray, "layer head 2"],
    *,
    quantity: str,
    theme: Theme = "light",
) -> go.Figure:
    """Draw a point per head with its interval, heads of a layer side by side; filled where the interval leaves out 0.
    NaN is left out. `quantity` is the axis's title. Up to `MOST_NAMED` heads are named at their points."""
    x, axis = head_places(*values.shape)
    names = np.array(names_of_heads(values.shape))
    low, high = intervals.reshape(-1, 2).T
    apart, y = (low > 0) | (high < 0), values.ravel()
    up = {"zeroline": True, "zerolinecolor": INK[theme]}
    figure = axes(theme, "layer", quantity, height=360, xaxis=axis, yaxis=up, showlegend=True)
    sorts = ((apart, "the interval leaves out 0", "circle"), (~apart, "it does not", "circle-open"))
    for group, name, symbol in sorts:
        group = group & np.isfinite(y)
        figure.add_scatter(
            x=x[group], y=y[group], mode="markers+text" if len(names) <= MOST_NAMED else "markers", text=names[group],
            name=name, textposition="middle right", textfont={"size": 10, "color": QUIET_INK[theme]},
            marker={"size": 8, "color": LINES[theme][0], "symbol": symbol},
            error_y=error_bars(y[group], low[group], high[group], width=0, thickness=1.2, color=LINES[theme][0]),
            customdata=np.stack([low[group], high[group]], -1),
            hovertemplate="head %{text}: %{y:.3g} (%{customdata[0]:.3g} to %{customdata[1]:.3g})<extra></extra>",
        )  # fmt: skip
    return figure


def seed_curves(
    x: Float[np.ndarray, " point"] | Integer[np.ndarray, " point"],
    curves: Mapping[str, Float[np.ndarray, ...]],
    *,
    x_title: str,
    y_title: str,
    log_y: bool = False,
    references: Mapping[str, float] | None = None,
    quiet: Iterable[str] = (),
    theme: Theme = "light",
) -> go.Figure:
    """Draw a line for each name (`[seed, point]`): the mean over seeds, in the band from the least to the greatest. A
    NaN leaves its point out.

    `references` are levels to compare with, `quiet` names of curves that are dashed. With few points each is marked.
    Raises `ValueError` for no curves, for shapes that don't fit `x`, and for values that a logarithm does not have.
    """
    if not curves:
        raise ValueError("seed_curves: expected at least one curve.")
    y_axis = {"type": "log" if log_y else "linear", "exponentformat": "power"}
    figure = axes(theme, x_title, y_title, yaxis=y_axis, hovermode="x unified")
    for index, (name, values) in enumerate(curves.items()):
        if values.ndim != 2 or values.shape[1] != len(x):
            raise ValueError(f"seed_curves: expected {name!r} as [seed, {len(x)}], got {list(values.shape)}.")
        is_number = ~np.isnan(values).any(0)
        if log_y and (values[:, is_number] <= 0).any():
            raise ValueError(f"seed_curves: expected positive values of {name!r} for a logarithmic axis.")
        here, y = x[is_number], values[:, is_number]
        if len(values) > 1:
            figure.add_trace(band(here, y.min(0), y.max(0), line_colour(theme, index), name))
        figure.add_trace(
            go.Scatter(
                x=here, y=y.mean(0), name=name, legendgroup=name, **line_of(here, index, name in quiet, theme),
                customdata=np.stack([y.min(0), y.max(0)], 1),
                hovertemplate="%{y:.4g} (%{customdata[0]:.4g} to %{customdata[1]:.4g})",
            )
        )  # fmt: skip
    for name, level in (references or {}).items():
        add_level(figure, level, f"{name} {level:.3g}", theme)
    return figure


def line_of(points: Sequence[Any] | np.ndarray, place: int, dashed: bool, theme: Theme) -> dict[str, Any]:
    """Return the look of the line at this place, whose points are marked where they are few."""
    line = {"color": line_colour(theme, place), "width": 1.8, "dash": "dash" if dashed else "solid"}
    return {"mode": "lines+markers" if len(points) <= 30 else "lines", "marker": {"size": 5}, "line": line}
