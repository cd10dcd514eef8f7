"""The small picture of an example: its figure drawn once more by matplotlib, without words.

plotly itself draws in a browser only, and none is there when the site is built. What is drawn are the figure's own
numbers: heatmaps, lines and points, bars and pictures, each in its colours and at its place. Other traces are left out.
"""

from __future__ import annotations

import base64
import io
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import plotly.graph_objects as go
from matplotlib.colors import LinearSegmentedColormap
from PIL import Image

from aotlens.plots.colours import LINES, colorscale

#: Inches; 100 pixels each.
SIZE = (4.0, 2.8)


def draw_thumbnail(figure: go.Figure, path: str) -> None:
    """Write a PNG of the figure's traces to `path`, each pair of axes at its place in the figure."""
    canvas = plt.figure(figsize=SIZE, facecolor="white")
    axes: dict[str, Any] = {}
    for place, trace in enumerate(figure.data):
        if trace.type not in _DRAW or trace.visible is False:
            continue
        names = trace.xaxis or "x", trace.yaxis or "y"
        if names not in axes:
            axes[names] = _axes(canvas, figure, *names)
        _DRAW[trace.type](axes[names], trace, figure, LINES["light"][place % len(LINES["light"])])
    for (x, y), axis in axes.items():
        _finish(axis, _layout(figure, x, "x"), _layout(figure, y, "y"))
    canvas.savefig(path, dpi=100)
    plt.close(canvas)


def _layout(figure: go.Figure, name: str, kind: str) -> Any:
    """`x2` → layout.xaxis2."""
    return figure.layout[f"{kind}axis{name[1:]}"]


def _axes(canvas: Any, figure: go.Figure, x: str, y: str) -> Any:
    left, right = _layout(figure, x, "x").domain or (0, 1)
    low, high = _layout(figure, y, "y").domain or (0, 1)
    axis = canvas.add_axes([0.06 + 0.88 * left, 0.07 + 0.86 * low, 0.88 * (right - left), 0.86 * (high - low)])
    for picture in figure.layout.images:
        if picture.xref == x:
            pixels = np.asarray(
                Image.open(io.BytesIO(base64.b64decode(picture.source.partition(",")[2]))).convert("RGB")
            )
            ends = (picture.x, picture.x + picture.sizex, picture.y + picture.sizey, picture.y)
            axis.imshow(pixels, extent=ends, aspect="auto")
    return axis


def _finish(axis: Any, x: Any, y: Any) -> None:
    for kind, layout in (("x", x), ("y", y)):
        if layout.type == "log":
            axis.set(**{f"{kind}scale": "log"})
        if layout.range is not None:
            ends = np.power(10.0, layout.range) if layout.type == "log" else layout.range
            axis.set(**{f"{kind}lim": tuple(ends)})
        elif layout.autorange == "reversed":
            getattr(axis, f"invert_{kind}axis")()
    axis.set(xticks=[], yticks=[])
    axis.minorticks_off()
    for spine in axis.spines.values():
        spine.set_color("#c9ced6")


def _heatmap(axis: Any, trace: Any, figure: go.Figure, colour: str) -> None:
    bar = figure.layout.coloraxis if trace.coloraxis else None
    scale = (bar.colorscale if bar else trace.colorscale) or colorscale("sequential", "light")
    low, high = (bar.cmin, bar.cmax) if bar else (trace.zmin, trace.zmax)
    values = np.ma.masked_invalid(np.asarray(trace.z, dtype=float))
    stops = [(stop, _rgba(name)) for stop, name in scale]
    axis.imshow(
        values, cmap=LinearSegmentedColormap.from_list("scale", stops), vmin=low, vmax=high, aspect="auto",
        interpolation="nearest", origin="lower",
    )  # fmt: skip


def _scatter(axis: Any, trace: Any, figure: go.Figure, colour: str) -> None:
    if trace.x is None or trace.y is None or not len(trace.x):
        return
    mode = trace.mode or "lines"
    colour = trace.line.color or (trace.marker.color if isinstance(trace.marker.color, str) else None) or colour
    if trace.fill == "toself":
        axis.fill(trace.x, trace.y, color=trace.fillcolor or colour, alpha=trace.opacity or 0.2, linewidth=0)
        return
    dash = "--" if trace.line.dash == "dash" else "-"
    axis.plot(
        trace.x, trace.y, color=colour, linewidth=1.6 if "lines" in mode else 0, linestyle=dash,
        marker="o" if "markers" in mode else "", markersize=3,
    )  # fmt: skip


def _bar(axis: Any, trace: Any, figure: go.Figure, colour: str) -> None:
    colour = trace.marker.color if isinstance(trace.marker.color, str) else colour
    if trace.orientation == "h":
        axis.barh([str(name) for name in trace.y], trace.x, color=colour)
    else:
        axis.bar([str(name) for name in trace.x], trace.y, color=colour)


def _rgba(colour: str) -> Any:
    """A colour as matplotlib takes it: plotly's `rgba(1,2,3,0.5)` has bytes."""
    if not colour.startswith("rgb"):
        return colour
    red, green, blue, *alpha = (float(part) for part in colour.partition("(")[2].rstrip(")").split(","))
    return (red / 255, green / 255, blue / 255, *(alpha or [1.0]))


_DRAW = {"heatmap": _heatmap, "scatter": _scatter, "scattergl": _scatter, "bar": _bar}
