"""Graphs: boxes in columns of layers with links whose width is a share, and a head between those that it reads and
those that read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import plotly.graph_objects as go

from aotlens.conventions import Head, head_name
from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET, QUIET_INK, Theme, base_layout
from aotlens.plots.primitives import LEGEND, plotly_text

_STEPS = 24  # of a curve
_ROW = 52  # pixels for a box


@runtime_checkable
class LayeredBox(Protocol):
    """The drawing of a box: two lines of text, a column from the left, and its height from 0 (the top) to 1.

    `notes` are shown on hover; `cell` is the point's customdata, for what follows a click.
    """

    @property
    def title(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def column(self) -> int: ...
    @property
    def row(self) -> float: ...
    @property
    def cell(self) -> object: ...
    @property
    def notes(self) -> Sequence[str]: ...


class LayeredLink(NamedTuple):
    """The drawing of a link: its ends, as places among the boxes, its width from 0 to 1, and what hover says."""

    start: int
    end: int
    share: float
    text: str
    colour: int = 0
    """The colour's place among the theme's lines."""
    dash: str = "solid"
    """The dash of the line, as plotly names it."""
    cell: str | None = None
    """The points' customdata, for what follows a click."""


def layered_graph(boxes: Sequence[LayeredBox], links: Sequence[LayeredLink], *, theme: Theme = "light") -> go.Figure:
    """Draw boxes, and the links between them.

    Raises `ValueError` for a link that does not lead to the right.
    """
    columns = [box.column for box in boxes]
    most = max((columns.count(column) for column in set(columns)), default=1)
    xaxis = {"visible": False, "range": [-0.5, max(columns, default=0) + 0.5]}
    yaxis = {"visible": False, "range": [1, 0]}
    height = max(260, _ROW * most)
    figure = go.Figure(layout=base_layout(theme, xaxis=xaxis, yaxis=yaxis, height=height, hovermode="closest"))
    texts = [
        "<br>".join(plotly_text(text) for text in (f"{box.title} {box.detail}".strip(), *box.notes)) for box in boxes
    ]
    # Before the links, which end where the boxes are: of two points that are as near, the pointer finds the first.
    figure.add_scatter(
        x=columns,
        y=[box.row for box in boxes],
        mode="markers",
        marker={"size": 30, "opacity": 0},
        text=texts,
        customdata=[box.cell for box in boxes],
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )
    for link in links:
        start, end = boxes[link.start], boxes[link.end]
        if start.column >= end.column:
            raise ValueError(f"layered_graph: expected links to the right, got {start.title} → {end.title}.")
        across = np.linspace(0, 1, _STEPS)
        bend = across**2 * (3 - 2 * across)
        figure.add_scatter(
            x=(start.column + across * (end.column - start.column)).tolist(),
            y=(start.row + bend * (end.row - start.row)).tolist(),
            mode="lines",
            opacity=0.6,
            showlegend=False,
            line={"width": 0.8 + 9 * link.share, "color": LINES[theme][link.colour], "dash": link.dash},
            customdata=[link.cell] * _STEPS if link.cell else None,
            hovertemplate=f"{link.text}<extra></extra>",
        )
    for box in boxes:
        detail = f"<br>{plotly_text(box.detail)}" if box.detail else ""
        figure.add_annotation(
            x=box.column,
            y=box.row,
            text=f"<b>{plotly_text(box.title)}</b>{detail}",
            showarrow=False,
            borderpad=3,
            bgcolor=BACKGROUND[theme],
            bordercolor=QUIET_INK[theme],
            font={"size": 11},
        )
    return figure


#: The number of lines up to which each has its number next to it.
_LABELLED = 8

#: The modes in which a later head reads an earlier one: a colour's place in `LINES`, a name, and which way the line
#: bends.
_MODES = {
    "q": (0, "into queries (q)", 0.10),
    "k": (1, "into keys (k)", 0.0),
    "qk": (0, "into queries and keys (q = k)", 0.05),
    "v": (2, "into values (v)", -0.10),
}


@dataclass(frozen=True, kw_only=True)
class Edge:
    """The composition of an earlier head with a later one."""

    earlier: Head
    later: Head
    mode: str
    """q, k or v; qk where the two are one number (MSSA)."""
    value: float | int
    """The composition score, 0 to 1."""
    z: float | int
    """Standard deviations of the squared product above flipped signs (`aotlens.circuits.nulls`); NaN: unknown."""
    rank: int
    """The earlier head's place among all that the later head can read, by value; 1 is the highest."""


def composition_graph(
    edges: Sequence[Edge], head: Head, n_layers: int, n_heads: int, *, theme: Theme = "light"
) -> go.Figure:
    """Draw the head in the middle, heads of earlier layers to its left and of later layers to its right.

    A line is an edge, its colour the way in which the later head reads, its width its value. Heads without an edge
    are faint. `customdata` of a head's point is `[layer, head]`, so that a click can go there.
    """
    layers = [
        {"x": layer, "y": -0.62 * n_heads, "text": f"layer {layer}", "showarrow": False,
         "font": {"color": QUIET_INK[theme]}}
        for layer in range(n_layers)
    ]  # fmt: skip
    hidden = {"visible": False, "fixedrange": True}
    down = {**hidden, "autorange": "reversed"}
    layout = base_layout(theme, xaxis=hidden, yaxis=down, legend=LEGEND, hovermode="closest", annotations=layers)
    figure = go.Figure(layout=layout)
    where = _places(head, n_layers, n_heads)
    widest = max((edge.value for edge in edges), default=1.0)
    named: set[str] = set()
    for edge in sorted(edges, key=lambda edge: edge.value):
        place, name, bend = _MODES[edge.mode]
        figure.add_trace(_edge_line(edge, where, LINES[theme][place], bend, widest, name, edge.mode not in named))
        named.add(edge.mode)
    _add_points(figure, edges, where, theme)
    linked = {end for edge in edges for end in (edge.earlier, edge.later)}
    for on in (False, True):
        heads = [other for other in where if (other in linked) is on and other != head]
        figure.add_trace(_heads(heads, where, on, theme))
    figure.add_trace(_heads([head], where, True, theme, middle=True))
    return figure


def _places(head: Head, n_layers: int, n_heads: int) -> dict[Head, tuple[float, float]]:
    """Layers across, heads down; of the head's own layer only itself, half way down."""
    places = {
        (layer, index): (float(layer), index - (n_heads - 1) / 2)
        for layer in range(n_layers)
        for index in range(n_heads)
        if layer != head[0]
    }
    return {**places, head: (float(head[0]), 0.0)}


def _curve(
    start: tuple[float, float], end: tuple[float, float], bend: float, n: int = 17
) -> tuple[np.ndarray, np.ndarray]:
    """Points of a line that leaves and arrives level, lifted in its middle by `bend` layers' width."""
    t = np.linspace(0, 1, n)
    ease = t * t * (3 - 2 * t)
    lift = bend * 4 * t * (1 - t) * (1 + abs(end[0] - start[0]))
    return start[0] + (end[0] - start[0]) * t, start[1] + (end[1] - start[1]) * ease - lift * 2


def _edge_line(
    edge: Edge,
    where: dict[Head, tuple[float, float]],
    colour: str,
    bend: float,
    widest: float,
    name: str,
    first: bool,
) -> go.Scatter:
    x, y = _curve(where[edge.earlier], where[edge.later], bend)
    return go.Scatter(
        x=x.astype(np.float32), y=y.astype(np.float32), mode="lines", name=name, legendgroup=name, showlegend=first,
        line={"color": colour, "width": 1 + 6 * edge.value / max(widest, 1e-9)}, opacity=0.75, hoverinfo="skip",
    )  # fmt: skip


def _add_points(figure: go.Figure, edges: Sequence[Edge], where: dict[Head, tuple[float, float]], theme: Theme) -> None:
    """Points on the lines to point at, since plotly's lines can't be."""
    for mode, (place, name, bend) in _MODES.items():
        of_mode = [edge for edge in edges if edge.mode == mode]
        if not of_mode:
            continue
        curves = [_curve(where[edge.earlier], where[edge.later], bend) for edge in of_mode]
        text = [
            f"{head_name(edge.earlier)} → {head_name(edge.later)}, {name}<br><b>{edge.value:.3f}</b>, place {edge.rank}"
            f" among what {head_name(edge.later)} reads<br>z {edge.z:.1f} of its square, against flipped signs"
            for edge in of_mode
        ]
        if len(edges) <= _LABELLED:
            for edge, (x, y) in zip(of_mode, curves, strict=True):
                figure.add_annotation(
                    x=float(x[7]), y=float(y[7]), text=f"{mode} {edge.value:.2f}", showarrow=False, yshift=11,
                    font={"size": 11, "color": LINES[theme][place]},
                )  # fmt: skip
        places = (5, 8, 11)
        figure.add_trace(
            go.Scatter(
                x=np.array([x[i] for x, _ in curves for i in places], dtype=np.float32),
                y=np.array([y[i] for _, y in curves for i in places], dtype=np.float32),
                text=[line for line in text for _ in places],
                mode="markers",
                legendgroup=name,
                showlegend=False,
                marker={"size": 12, "color": LINES[theme][place], "opacity": 0},
                hovertemplate="%{text}<extra></extra>",
            )
        )


def _heads(
    heads: Sequence[Head], where: dict[Head, tuple[float, float]], on: bool, theme: Theme, middle: bool = False
) -> go.Scatter:
    colour = LINES[theme][1] if middle else (INK[theme] if on else QUIET[theme])
    outline = {"width": 2.5 if middle else (1.5 if on else 1), "color": colour}
    return go.Scatter(
        x=np.array([where[head][0] for head in heads], dtype=np.float32),
        y=np.array([where[head][1] for head in heads], dtype=np.float32),
        text=list(map(head_name, heads)),
        customdata=list(map(list, heads)),
        mode="markers+text",
        showlegend=False,
        textfont={"size": 11, "color": INK[theme] if on else QUIET_INK[theme]},
        marker={"size": 36 if middle else 30, "color": BACKGROUND[theme], "line": outline},
        hovertemplate="head %{text}" + ("" if middle else ": click to go there") + "<extra></extra>",
    )
