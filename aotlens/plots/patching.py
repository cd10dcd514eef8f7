"""The share that patching a cell or an edge restores, how well a gradient predicts it, and a circuit as a graph."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import plotly.graph_objects as go

from aotlens.conventions import glyphs, minus
from aotlens.plots.colours import INK, LINES, Theme, base_layout, colorscale
from aotlens.plots.graphs import LayeredLink, layered_graph
from aotlens.plots.primitives import matrix_map, names_of_heads, plotly_text

if TYPE_CHECKING:
    from aotlens.data import PromptPairs
    from aotlens.data.pair_parts import Alignment
    from aotlens.patching import Attribution, EdgeAttribution, EdgeCircuit, Patched, PatchedEdges

#: The largest numbers of bars, links and tokens; those that change the metric most stay.
MOST_BARS, MOST_LINKS, MOST_TOKENS = 30, 200, 40


def patched_map(result: Patched, *, theme: Theme = "light") -> go.Figure:
    """Draw the restored share of every cell: layers down, positions or heads across; of heads by position,
    heads down."""
    return _cells(result, result.restored, _restored_of(result), theme, result.positions)


def _restored_of(result: Patched | PatchedEdges) -> str:
    return f"restored share of {result.metric.replace('_', ' ')}"


def _cells(
    result: Patched | Attribution, share: np.ndarray, quantity: str, theme: Theme,
    positions: tuple[int, ...] | None = None,
) -> go.Figure:  # fmt: skip
    if share.ndim == 3 and share.shape[2] == 1:  # heads at one position
        share = share[..., 0]
    rows = names_of_heads(share.shape[:2]) if share.ndim == 3 else [str(layer) for layer in range(len(share))]
    values = share.reshape(len(rows), -1)
    if result.axes[-1] == "position" and (share.ndim == 3 or "head" not in result.axes):
        places = range(values.shape[1]) if positions is None else positions
        words = result.str_tokens
        columns = [
            f"{position} {glyphs(words[position]) if words and words[position] else ''}".strip() for position in places
        ]
    else:
        columns = [str(head) for head in range(values.shape[1])]
    figure = matrix_map(
        values, rows, columns, quantity=quantity, theme=theme,
        row_title="head" if share.ndim == 3 else "layer",
        column_title="head" if share.ndim == 2 and "head" in result.axes else result.axes[-1],
    )  # fmt: skip
    # In one line it would be longer than a low figure is high.
    return figure.update_traces(colorbar_title_text=quantity.replace(" of ", " of<br>"))


def attribution_points(result: Attribution, shown: str = "check", *, theme: Theme = "light") -> go.Figure:
    """Draw the patched cells, a point each: the estimate across and the exact change up; dotted where both are equal.
    With `shown="cells"` the estimate of every cell, as `patched_map` has what is exact."""
    if shown == "cells":
        return _cells(result, result.estimate, f"{result.unit}, estimated", theme)
    names = [
        ", ".join(f"{axis} {index}" for axis, index in zip(result.axes, cell, strict=True))
        for cell in result.checked.tolist()
    ]
    return _estimates(result.estimated, result.exact, names, result.unit, theme)


def edge_attribution_points(result: EdgeAttribution, *, theme: Theme = "light") -> go.Figure:
    """Draw the patched edges, as `attribution_points` has cells."""
    names = [str(result.edges[place]) for place in result.checked]
    return _estimates(result.estimate[result.checked], result.exact, names, result.unit, theme)


def _estimates(x: np.ndarray, y: np.ndarray, names: list[str], unit: str, theme: Theme) -> go.Figure:
    reach = [float(min(x.min(), y.min(), 0)), float(max(x.max(), y.max(), 0))]
    across, up = (
        {"title": f"{kind} change, {unit}", "zeroline": True, "zerolinecolor": INK[theme]}
        for kind in ("estimated", "exact")
    )
    figure = go.Figure(layout=base_layout(theme, height=360, xaxis=across, yaxis=up))
    figure.add_scatter(
        x=reach, y=reach, mode="lines", line={"color": INK[theme], "width": 1, "dash": "dot"}, hoverinfo="skip",
        showlegend=False,
    )  # fmt: skip
    figure.add_scatter(
        x=x, y=y, mode="markers", text=names, showlegend=False, marker={"size": 9, "color": LINES[theme][0]},
        hovertemplate="%{text}<br>estimated %{x:.4f}<br>exact %{y:.4f}<extra></extra>",
    )  # fmt: skip
    return figure


def edge_bars(result: PatchedEdges, *, theme: Theme = "light") -> go.Figure:
    """Draw the restored share of the edges that change most, largest first, with intervals where there are several
    pairs; of edges patched together one bar."""
    base = 1.0 if result.direction == "noising" else 0.0
    share, intervals = result.restored, result.intervals()
    order = np.argsort(-np.abs(share - base), kind="stable")[:MOST_BARS]
    names = (
        [f"{len(result.edges)} edges together"] if result.together else [str(result.edges[index]) for index in order]
    )
    reach = np.abs(intervals[order] - share[order, None]).T
    layout = base_layout(
        theme, height=120 + 20 * len(order), xaxis={"title": _restored_of(result)},
        yaxis={"autorange": "reversed", "type": "category"},
    )  # fmt: skip
    figure = go.Figure(layout=layout)
    figure.add_bar(
        x=share[order], y=names, orientation="h", marker={"color": LINES[theme][0]}, showlegend=False,
        error_x=None if np.isnan(reach).any() else {"array": reach[1], "arrayminus": reach[0], "color": INK[theme]},
        hovertemplate="%{y}<br>%{x:.4f}<extra></extra>",
    )  # fmt: skip
    return figure


def pair_strips(result: PromptPairs, row: int = 0, *, theme: Theme = "light") -> go.Figure:
    """Draw the tokens of one pair, clean above corrupted, each above what corresponds to it; shaded where they differ,
    and empty where a token has no counterpart."""
    words = None if result.str_tokens is None else result.str_tokens[row]
    pair = result.pairs[row]
    places = _columns(pair.positions, len(pair.clean), len(pair.corrupted))
    marks = np.full((2, len(places)), np.nan, dtype=np.float32)
    texts = np.full((2, len(places)), "", dtype=object)
    differing = {*result.differences(row)}
    for column, ends in enumerate(places):
        for line, position in enumerate(ends):
            if position is not None:
                marks[line, column] = ends in differing or None in ends
                texts[line, column] = plotly_text(glyphs(words[line][position])) if words else str(position)
    names = ["clean", "corrupted"]
    heatmap = go.Heatmap(
        z=marks, y=names, zmin=0, zmax=3, text=texts, showscale=False, colorscale=colorscale("sequential", theme),
        texttemplate="%{text}" if len(places) <= MOST_TOKENS else None, textfont={"size": 11}, xgap=1, ygap=1,
        customdata=[["" if end is None else str(end) for end in line] for line in zip(*places, strict=True)],
        hovertemplate="%{y}, position %{customdata}<br><b>%{text}</b><extra></extra>",
    )  # fmt: skip
    axis = {"showgrid": False, "ticks": "", "zeroline": False}
    across = {**axis, "showticklabels": False}
    down = {**axis, "type": "category", "autorange": "reversed"}
    return go.Figure(heatmap, layout=base_layout(theme, height=130, xaxis=across, yaxis=down))


def _columns(positions: Alignment, n_clean: int, n_corrupted: int) -> list[tuple[int | None, int | None]]:
    """Both prompts side by side: positions that correspond in one column, others in columns of their own."""
    columns: list[tuple[int | None, int | None]] = []
    a = b = 0
    for here, there in (*positions, (n_clean, n_corrupted)):
        columns += [(position, None) for position in range(a, here)] + [
            (None, position) for position in range(b, there)
        ]
        if here < n_clean:
            columns.append((here, there))
        a, b = here + 1, there + 1
    return columns


class _Box(NamedTuple):
    title: str
    column: int
    row: float
    notes: tuple[str, ...]
    detail: str = ""
    cell: str | None = None


def circuit_graph(result: EdgeCircuit, *, theme: Theme = "light") -> go.Figure:
    """Draw the edges of a circuit from the embedding to the logits, in columns of layers; the wider, the more of the
    faithfulness is lost without it, dashed where it rises, dotted where it was taken out by hand; into queries orange,
    keys blue, values green, others grey.
    """
    edges = sorted(zip(result.edges, result.without, strict=True), key=lambda pair: pair[1])[:MOST_LINKS]
    drawn = [*(edge for edge, _ in edges), *result.removed]
    names = dict.fromkeys(name for edge in drawn for name in (edge.source, edge.receiver[0]))
    places = {name: _column(name) for name in names}
    used = sorted({place for place, _ in places.values()})
    boxes: list[_Box] = []
    index: dict[str, int] = {}
    for column, place in enumerate(used):
        here = sorted((order, name) for name, (column_of, order) in places.items() if column_of == place)
        for number, (_, name) in enumerate(here, start=1):
            index[name] = len(boxes)
            notes = tuple(f"without {edge}: {share:.3f}" for edge, share in edges if edge.source == name)
            boxes.append(_Box(name, column, number / (len(here) + 1), notes[:8]))
    without = dict(edges)
    links = []
    for edge in drawn:
        share = without.get(edge)
        receiver, side = edge.receiver
        lost = 0.0 if share is None else result.faithfulness - share
        note = "taken out" if share is None else f"faithfulness <b>{share:.3f}</b> without it ({minus(-lost, '+.3f')})"
        links.append(
            LayeredLink(
                index[edge.source], index[receiver], min(abs(lost) / max(abs(result.faithfulness), 1e-9), 1.0),
                f"{edge}<br>{note}", {"q": 1, "k": 0, "v": 2}.get(side, 5),
                "dot" if share is None else "dash" if lost < 0 else "solid", str(edge),
            )
        )  # fmt: skip
    return layered_graph(boxes, links, theme=theme)


def _column(name: str) -> tuple[float, int]:
    """Return the place in the depth of the model, and the order there."""
    if name in ("embed", "logits"):
        return (-1.0 if name == "embed" else math.inf), 0
    if name.startswith("mlp "):
        return int(name[4:]) + 0.5, 0
    layer, head = name.split(".")
    return float(layer), int(head)
