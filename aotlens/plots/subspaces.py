"""Tokens of noisy subspaces layer by layer: where they lie, their SNR, what attends to what; and queries on an energy:
the landscape that a context makes in the plane, and errors step by step.

Every figure of layers has a frame for each, named by its number, so that a browser moves through the layers by itself
(plotly's `animate`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from aotlens.conventions import require_whole
from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET, QUIET_INK, Theme, base_layout, colorscale
from aotlens.plots.primitives import axes, colour_bar

if TYPE_CHECKING:
    from aotlens.denoise import DescentErrors, Memberships, PlaneDescent, TokenPoints, Unrolling

#: A view of three axes in which none hides another, from far enough that a narrow panel keeps the upright axis's title.
_CAMERA = {"eye": {"x": 1.9, "y": 1.9, "z": 1.1}, "center": {"x": 0, "y": 0, "z": -0.1}}
_LEGEND = {
    "orientation": "h", "y": 1.0, "yanchor": "bottom", "itemsizing": "constant", "title": {"text": "cluster "},
}  # fmt: skip


def token_points(result: TokenPoints, *, layer: int = 0, theme: Theme = "light") -> go.Figure:
    """Draw tokens as points of two or three coordinates at a layer, a colour for each cluster, on the same axes at
    every layer. Raises `ValueError` if the layer does not exist."""
    labels, (n_layers, _, n_axes) = result.labels, result.coordinates.shape
    require_whole("layer", layer, 0, n_layers - 1)
    points = result.coordinates.astype(np.float32)
    names = "xyz"[:n_axes]
    kind, size = ("scatter3d", 3) if n_axes == 3 else ("scatter", 6)
    palette = np.array(LINES[theme])
    hover = "<br>".join(f"{title}  %{{{name}:.3f}}" for title, name in zip(result.axes, names, strict=True))

    def coordinates(index: int) -> dict[str, Any]:
        return {"type": kind, **dict(zip(names, points[index].T, strict=True))}

    # One trace for all clusters, since a frame's cost is in its traces; empty ones carry the legend.
    cloud = {
        **coordinates(layer), "mode": "markers", "showlegend": False, "opacity": 0.85,
        "marker": {"size": size, "color": palette[labels % len(palette)]}, "customdata": labels + 1,
        "hovertemplate": f"cluster %{{customdata}}<br>{hover}<extra></extra>",
    }  # fmt: skip
    legend = [
        {
            "type": kind, **{name: [None] for name in names}, "mode": "markers", "name": str(cluster + 1),
            "marker": {"size": size, "color": palette[cluster % len(palette)]},
        }
        for cluster in np.unique(labels).tolist()
    ]  # fmt: skip
    frames = [{"name": str(index), "data": [coordinates(index)], "traces": [0]} for index in range(n_layers)]
    styled = [
        {"title": {"text": title, "font": {"size": 12}}, "range": list(end), "autorange": False, "zeroline": False}
        for title, end in zip(result.axes, result.ranges, strict=True)
    ]
    if n_axes == 2:
        layout = base_layout(theme, xaxis=styled[0], yaxis=styled[1], legend=_LEGEND)
    else:
        look = {"gridcolor": QUIET[theme], "color": INK[theme], "showbackground": False, "tickfont": {"size": 10}}
        scene: dict[str, Any] = {f"{name}axis": {**axis, **look} for name, axis in zip(names, styled, strict=True)}
        scene |= {"aspectmode": "cube", "camera": _CAMERA, "uirevision": "camera"}
        layout = base_layout(theme, scene=scene, legend=_LEGEND)
    return go.Figure([cloud, *legend], layout, frames)


def unrolled(result: Unrolling, *, layer: int = 0, theme: Theme = "light") -> go.Figure:
    """Draw the SNR of every cluster by layer on a logarithmic axis, and SNR(0) · rateˡ of their mean, where there is a
    rate.

    The layers in which the rate is exact are shaded; a line is at `layer`. Values that are not positive and finite
    are left out. Raises `ValueError` if the layer does not exist.
    """
    snr = result.snr.numpy()
    n_layers = len(snr)
    require_whole("layer", layer, 0, n_layers - 1)
    finite_snr = np.where(np.isfinite(snr) & (snr > 0), snr, np.nan)
    layers = np.arange(n_layers)
    theory = None if math.isnan(result.rate) else np.nanmean(finite_snr[0]) * result.rate**layers
    everything = finite_snr if theory is None else np.concatenate([finite_snr.ravel(), theory])
    low, high = (float(end) for end in (np.nanmin(everything) / 1.3, np.nanmax(everything) * 1.3))
    curve = {"type": "scatter", "hovertemplate": "%{y:.4g}"}
    traces: list[dict[str, Any]] = [
        {
            **curve, "x": layers, "y": values, "mode": "lines+markers", "name": str(cluster + 1), "marker": {"size": 4},
            "line": {"color": LINES[theme][cluster % len(LINES[theme])], "width": 1.6},
        }
        for cluster, values in enumerate(finite_snr.T)
    ]  # fmt: skip
    if theory is not None:
        dashed = {"color": INK[theme], "width": 1.6, "dash": "dash"}
        traces.append({**curve, "x": layers, "y": theory, "mode": "lines", "name": "theory", "line": dashed})

    def mark(index: int) -> dict[str, Any]:
        return {"type": "scatter", "x": [index, index], "y": [low, high]}

    line = {"color": LINES[theme][1], "width": 2}
    upright = {"mode": "lines", "showlegend": False, "hoverinfo": "skip", "line": line}
    frames = [{"name": str(index), "data": [mark(index)], "traces": [len(traces)]} for index in layers.tolist()]
    shaded: dict[str, Any] = {}
    if exact_layers := result.exact_layers:
        ends = {"x0": 0, "x1": exact_layers, "y0": 0, "y1": 1, "yref": "y domain"}
        text = {"text": "exact", "showarrow": False, "font": {"size": 11, "color": INK[theme]}}
        shaded["shapes"] = [
            {"type": "rect", **ends, "fillcolor": LINES[theme][2], "opacity": 0.12, "line": {"width": 0}}
        ]
        shaded["annotations"] = [{**text, "x": 0, "xanchor": "left", "y": 1, "yanchor": "top", "yref": "y domain"}]
    layout = base_layout(
        theme,
        xaxis={"title": {"text": "layer (0: the tokens as drawn)"}, "range": [-0.3, n_layers - 0.7]},
        yaxis={
            "title": {"text": "signal-to-noise ratio"}, "type": "log", "range": [np.log10(low), np.log10(high)],
            **_decades(low, high),
        },
        hovermode="x unified", legend=_LEGEND, **shaded,
    )  # fmt: skip
    return go.Figure([*traces, {**mark(layer), **upright}], layout, frames)


def memberships(result: Memberships, *, theme: Theme = "light") -> go.Figure:
    """Draw φ within a subspace between tokens at the result's layer, queries down and keys across, in the
    order of their clusters, with lines between them. One colour scale from 0 to the largest weight of all layers."""
    patterns, labels, layer = result.patterns.astype(np.float32), result.labels, result.layer
    n_layers, _, n_keys = patterns.shape
    require_whole("layer", layer, 0, n_layers - 1)
    edges = np.flatnonzero(np.diff(labels)) + 1
    starts = np.concatenate([[0], edges, [n_keys]])
    middles = ((starts[:-1] + starts[1:] - 1) / 2).tolist()
    names = [str(int(label) + 1) for label in labels[starts[:-1]]]
    heatmap = {
        "type": "heatmap", "z": patterns[layer], "zmin": 0, "zmax": float(patterns.max(initial=0.0)) or 1.0,
        "colorscale": colorscale("sequential", theme), "colorbar": {"thickness": 10, "outlinewidth": 0},
        "hovertemplate": "query %{y}<br>key %{x}<br><b>%{z:.4f}</b><extra></extra>",
    }  # fmt: skip
    frames = [
        {"name": str(index), "data": [{"type": "heatmap", "z": patterns[index]}], "traces": [0]}
        for index in range(n_layers)
    ]
    line = {"type": "line", "line": {"color": INK[theme], "width": 0.8}}
    shapes = []
    for edge in (edges - 0.5).tolist():
        shapes.append({**line, "x0": edge, "x1": edge, "y0": -0.5, "y1": n_keys - 0.5})
        shapes.append({**line, "y0": edge, "y1": edge, "x0": -0.5, "x1": n_keys - 0.5})
    axis = {"tickvals": middles, "ticktext": names, "showgrid": False, "zeroline": False, "constrain": "domain"}
    down = {"title": {"text": "query, by cluster"}, "autorange": "reversed", "scaleanchor": "x"}
    layout = base_layout(
        theme, xaxis={**axis, "title": {"text": "key, by cluster"}}, yaxis={**axis, **down}, shapes=shapes
    )  # fmt: skip
    return go.Figure([heatmap], layout, frames)


def _decades(low: float, high: float) -> dict[str, Any]:
    """Ticks at 1, 2 and 5 times the powers of ten, in full (plotly writes 0.5 as 5); of many decades, the powers."""
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    digits = (1, 2, 5) if len(powers) <= 4 else (1,)
    values = [digit * 10.0**power for power in powers for digit in digits if low <= digit * 10.0**power <= high]
    return {"tickvals": values, "ticktext": [f"{value:g}" for value in values]}


def plane_descent(result: PlaneDescent, *, theme: Theme = "light") -> go.Figure:
    """Draw level lines of the energy of one prompt with its tokens, the query, its attention step and its way downhill.

    The arrow is the one-step update; Bayes's answer and the clean token are shown too. The deeper the colour, the lower
    the energy. Both axes have one scale. A point may lie outside.
    """
    outline = {"width": 1, "color": INK[theme]}
    plane, path = result.plane, result.descent.states[:, 0].numpy()
    context, attention = result.prompts.context[0].numpy(), result.descent.attention[0].numpy()
    x, y = plane.x.numpy(), plane.y.numpy()
    traces: list[dict[str, Any]] = [
        {
            "type": "contour", "name": "energy", "x": x, "y": y, "z": plane.energy.numpy().astype(np.float32),
            "colorscale": colorscale("sequential", theme), "reversescale": True, "opacity": 0.75, "ncontours": 26,
            "line": {"width": 0.4, "color": QUIET_INK[theme]},
            "colorbar": colour_bar("energy"),
            "hovertemplate": "(%{x:.2f}, %{y:.2f})<br>energy %{z:.4g}<extra></extra>",
        },
        _markers("context", context, {"size": 6, "color": BACKGROUND[theme], "line": outline}),
    ]  # fmt: skip
    if len(path) > 1:
        traces.append(
            {
                **_markers(f"{len(path) - 1} steps", path, {"size": 4}), "mode": "lines+markers",
                "line": {"color": LINES[theme][2], "width": 2}, "customdata": np.arange(len(path)),
                "hovertemplate": "step %{customdata}: (%{x:.3f}, %{y:.3f})<extra></extra>",
            }
        )  # fmt: skip
    head = {"size": [0, 13], "symbol": "arrow", "angleref": "previous", "color": LINES[theme][1]}
    update = _markers("attention, one step", np.stack([path[0], attention]), head)
    traces.append({**update, "mode": "lines+markers", "line": {"color": LINES[theme][1], "width": 3}})
    answers = (("Bayes", result.descent.bayes, "diamond"), ("clean", result.prompts.target, "star"))
    for place, (name, points, symbol) in enumerate(answers, start=3):
        look = {"size": 12, "symbol": symbol, "color": LINES[theme][place], "line": outline}
        traces.append(_markers(name, points[:1].numpy(), look))
    look = {"size": 15, "color": LINES[theme][1], "line": {"width": 2, "color": INK[theme]}}
    traces.append(_markers("query", path[:1], look))  # last, so that it lies on top, where a pointer finds it
    axis = {"showgrid": False, "zeroline": False, "constrain": "domain"}
    layout = base_layout(
        theme,
        xaxis={**axis, "range": [float(x.min()), float(x.max())]},
        yaxis={**axis, "range": [float(y.min()), float(y.max())], "scaleanchor": "x"},
        dragmode=False,
        legend={"orientation": "h", "y": 1.01, "yanchor": "bottom"},
    )
    return go.Figure(traces, layout)


def _markers(name: str, points: np.ndarray, marker: dict[str, Any]) -> dict[str, Any]:
    hover = f"{name} (%{{x:.3f}}, %{{y:.3f}})<extra></extra>"
    where = {"x": points[:, 0], "y": points[:, 1]}
    return {"type": "scatter", "mode": "markers", "name": name, **where, "marker": marker, "hovertemplate": hover}


def descent_errors(result: DescentErrors, *, theme: Theme = "light") -> go.Figure:
    """Draw squared errors after 0, 1, … steps: the mean over prompts, one query's own, and levels to compare with.

    The axis is logarithmic where the mean grows more than a hundredfold.
    """
    mean = result.mean.errors.mean(1).numpy()
    levels = {
        "attention": float(result.mean.attention_errors.mean()), "Bayes": float(result.mean.bayes_errors.mean())
    }  # fmt: skip
    steps = np.arange(len(mean))
    curves = {
        "mean over prompts": (mean, LINES[theme][2], 2.2),
        "this query": (result.single.errors[:, 0].numpy(), LINES[theme][1], 1.2),
    }
    traces = [
        {
            "type": "scatter", "x": steps, "y": values, "name": name, "marker": {"size": 4},
            "mode": "lines+markers" if len(mean) <= 40 else "lines", "line": {"color": colour, "width": width},
            "hovertemplate": "%{y:.4g}",
        }
        for name, (values, colour, width) in curves.items()
    ]  # fmt: skip
    grows = bool(mean.max() > 100 * mean[0])
    shapes, notes = [], []
    for name, level in levels.items():
        dotted = {"dash": "dot", "width": 1.2, "color": INK[theme]}
        shapes.append({"type": "line", "xref": "x domain", "x0": 0, "x1": 1, "y0": level, "y1": level, "line": dotted})
        # The lowest has its name below it: two levels that lie close would write over each other.
        below = level == min(levels.values())
        notes.append(
            {
                "text": f"{name} {level:.3g}", "font": {"size": 11, "color": INK[theme]}, "showarrow": False,
                # On a logarithmic axis an annotation, and it alone, is placed by its logarithm.
                "y": np.log10(level) if grows else level,
                "xref": "x domain", "x": 1, "xanchor": "right", "yanchor": "top" if below else "bottom",
            }
        )  # fmt: skip
    axis = {"type": "log", "exponentformat": "power"} if grows else {"rangemode": "tozero"}
    titles = "step (0: the query)", "squared distance to the clean token"
    figure = axes(theme, *titles, yaxis=axis, hovermode="x unified", shapes=shapes, annotations=notes)
    return figure.add_traces(traces)
