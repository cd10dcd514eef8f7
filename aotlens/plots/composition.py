"""A head between the heads that it reads and those that read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET, QUIET_INK, Theme, base_layout

#: The number of lines up to which they have their numbers beside them.
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

    earlier: tuple[int, int]
    later: tuple[int, int]
    mode: str
    """q, k or v; qk where the two are one number (MSSA)."""
    value: float | int
    """The composition score, 0 to 1."""
    z: float | int
    """Standard deviations of the squared product above flipped signs (`aotlens.circuits.sign_flips`); NaN: unknown."""
    rank: int
    """The earlier head's place among all that the later head can read, by value; 1 is the highest."""


def composition_graph(
    edges: Sequence[Edge], head: tuple[int, int], n_layers: int, n_heads: int, *, theme: Theme = "light"
) -> go.Figure:
    """Draw the chosen head in the middle, heads of earlier layers to its left and of later layers to its right.

    A line is an edge, its colour the way in which the later head reads, its width its value. Heads without an edge
    are faint. `customdata` of a head's point is `[layer, head]`, so that a click can go there.
    """
    layers = [
        {"x": layer, "y": -0.62 * n_heads, "text": f"layer {layer}", "showarrow": False,
         "font": {"color": QUIET_INK[theme]}}
        for layer in range(n_layers)
    ]  # fmt: skip
    hidden = {"visible": False, "fixedrange": True}
    figure = go.Figure(
        layout=base_layout(
            theme,
            xaxis=hidden,
            yaxis={**hidden, "autorange": "reversed"},
            legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
            hovermode="closest",
            annotations=layers,
        )
    )
    where = _places(head, n_layers, n_heads)
    widest = max((edge.value for edge in edges), default=1.0)
    named: set[str] = set()
    for edge in sorted(edges, key=lambda edge: edge.value):
        place, name, bend = _MODES[edge.mode]
        figure.add_trace(_line(edge, where, LINES[theme][place], bend, widest, name, edge.mode not in named))
        named.add(edge.mode)
    _add_points(figure, edges, where, theme)
    linked = {each for edge in edges for each in (edge.earlier, edge.later)}
    for on, heads in (
        (False, [each for each in where if each not in linked and each != head]),
        (True, [each for each in where if each in linked and each != head]),
    ):
        figure.add_trace(_heads(heads, where, on, theme))
    figure.add_trace(_heads([head], where, True, theme, chosen=True))
    return figure


def _places(head: tuple[int, int], n_layers: int, n_heads: int) -> dict[tuple[int, int], tuple[float, float]]:
    """Layers across, heads down; of the chosen head's own layer only itself, half way down."""
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


def _line(
    edge: Edge,
    where: dict[tuple[int, int], tuple[float, float]],
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


def _add_points(
    figure: go.Figure, edges: Sequence[Edge], where: dict[tuple[int, int], tuple[float, float]], theme: Theme
) -> None:
    """Points on the lines to point at, since plotly's lines can't be."""
    for mode, (place, name, bend) in _MODES.items():
        chosen = [edge for edge in edges if edge.mode == mode]
        if not chosen:
            continue
        curves = [_curve(where[edge.earlier], where[edge.later], bend) for edge in chosen]
        text = [
            f"{_name(edge.earlier)} → {_name(edge.later)}, {name}<br><b>{edge.value:.3f}</b>, place {edge.rank} among "
            f"what {_name(edge.later)} reads<br>z {edge.z:.1f} of its square, against flipped signs"
            for edge in chosen
        ]
        if len(edges) <= _LABELLED:
            for edge, (x, y) in zip(chosen, curves, strict=True):
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
                marker={"size": 12, "color": LINES[theme][place], "opacity": 0},
                hovertemplate="%{text}<extra></extra>",
                legendgroup=name,
                showlegend=False,
            )
        )


def _heads(
    heads: Sequence[tuple[int, int]],
    where: dict[tuple[int, int], tuple[float, float]],
    on: bool,
    theme: Theme,
    chosen: bool = False,
) -> go.Scatter:
    colour = LINES[theme][1] if chosen else (INK[theme] if on else QUIET[theme])
    return go.Scatter(
        x=np.array([where[each][0] for each in heads], dtype=np.float32),
        y=np.array([where[each][1] for each in heads], dtype=np.float32),
        text=[_name(each) for each in heads],
        customdata=[list(each) for each in heads],
        mode="markers+text",
        textfont={"size": 11, "color": INK[theme] if on else QUIET_INK[theme]},
        marker={
            "size": 36 if chosen else 30,
            "color": BACKGROUND[theme],
            "line": {"width": 2.5 if chosen else (1.5 if on else 1), "color": colour},
        },
        hovertemplate="head %{text}" + ("" if chosen else ": click to go there") + "<extra></extra>",
        showlegend=False,
    )


def _name(head: tuple[int, int]) -> str:
    return f"{head[0]}.{head[1]}"
