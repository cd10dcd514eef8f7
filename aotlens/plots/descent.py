"""Queries on an energy: the landscape that a context makes in the plane, and errors step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET_INK, Theme, base_layout, colorscale

if TYPE_CHECKING:
    from aotlens.denoise import DescentErrors, PlaneDescent


def plane_descent(result: PlaneDescent, *, theme: Theme = "light") -> go.Figure:
    """Draw level lines of the energy of one prompt with its tokens, the query, its attention step and its way downhill.

    The arrow is the one-step update; Bayes's answer and the clean token are beside it. The deeper the colour, the lower
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
            "colorbar": {"thickness": 10, "outlinewidth": 0, "title": {"text": "energy", "side": "right"}},
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
    title = {"title": {"text": "squared distance to the clean token"}}
    axis = {"type": "log", "exponentformat": "power"} if grows else {"rangemode": "tozero"}
    layout = base_layout(
        theme,
        xaxis={"title": {"text": "step (0: the query)"}},
        yaxis={**title, **axis},
        hovermode="x unified", legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        shapes=shapes, annotations=notes,
    )  # fmt: skip
    return go.Figure(traces, layout)
