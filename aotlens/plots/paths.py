"""A logit's paths: what each length adds, and its flow from tokens through heads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET_INK, Theme, base_layout
from aotlens.plots.labels import glyphs, plotly_text

if TYPE_CHECKING:
    from aotlens.paths import LogitByOrder, Sankey
    from aotlens.paths.sankey import Node

_PAD = 10  # pixels between nodes of a column
_ROOM = 0.13  # for the first column's labels to its right, and the last one's to its left


def order_bars(
    values: Float[np.ndarray, " order"],
    counts: Sequence[int] | None = None,
    *,
    quantity: str = "logits",
    first: int = 0,
    theme: Theme = "light",
) -> go.Figure:
    """Draw the summed contribution of all paths with k heads, one bar for each k from `first` on; blue adds, orange
    takes away.

    `counts` is how many paths there are of each length, for the hover text. Raises `ValueError` where it does not fit.
    """
    if counts is not None and len(counts) != len(values):
        raise ValueError(f"order_bars: expected {len(values)} counts, one an order, got {len(counts)}.")
    number = ["" if counts is None else f"{count:,} path{'' if count == 1 else 's'}<br>" for count in counts or values]
    bars = go.Bar(
        x=np.arange(first, first + len(values)),
        y=values.astype(np.float32),
        text=[_short(value) for value in values],
        textposition="outside",
        cliponaxis=False,
        customdata=number,
        marker={"color": [_colour(value, theme) for value in values]},
        hovertemplate=f"through %{{x}} heads<br>%{{customdata}}<b>%{{y:+.4f}} {quantity}</b><extra></extra>",
    )
    figure = go.Figure(bars)
    figure.update_layout(base_layout(theme))
    figure.update_layout(margin={"t": 24, "b": 8})
    figure.update_xaxes(title={"text": "heads that a path passes"}, dtick=1, showgrid=False, zeroline=False)
    figure.update_yaxes(title={"text": quantity}, zeroline=True, zerolinewidth=1.5)
    return figure


def logit_orders(result: LogitByOrder, *, theme: Theme = "light") -> go.Figure:
    """Draw the contribution of all paths through k heads to one logit, or to a difference of two."""
    return order_bars(result.values, result.counts, quantity=result.unit, theme=theme)


def flow(result: Sankey, *, theme: Theme = "light") -> go.Figure:
    """Draw a logit's flow from the prompt's tokens through heads: widths are sizes, blue adds to the end and orange
    takes away. Nodes that no link touches are left out. In a column the largest node is at the top."""
    nodes, sources, targets, values = result.nodes, result.sources.tolist(), result.targets.tolist(), result.values
    last = 1 + max((_layer(node) for node in nodes), default=0)
    used = sorted({*sources, *targets})
    place = {node: index for index, node in enumerate(used)}
    columns = [last + 1 if nodes[i].kind == "logit" else 1 + _layer(nodes[i]) for i in used]
    x, y = _places(columns, _sizes(used, sources, targets, values))
    colours = {"head": INK[theme], "logit": LINES[theme][2]}
    notes = [f"{_note(result, nodes[i], result.through[i])}<br>" for i in used]
    figure = go.Figure(
        go.Sankey(
            arrangement="snap",
            node={
                "label": [plotly_text(_box(result, nodes[i])) for i in used],
                "x": x,
                "y": y,
                "pad": _PAD,
                "thickness": 12,
                "color": [colours.get(nodes[i].kind, QUIET_INK[theme]) for i in used],
                "line": {"width": 0},
                "customdata": notes,
                "hovertemplate": "<b>%{label}</b><br>%{customdata}<extra></extra>",
            },
            link={
                "source": [place[i] for i in sources],
                "target": [place[i] for i in targets],
                "value": np.maximum(np.abs(values), 1e-9).astype(np.float32),
                "color": [_faint(_colour(value, theme)) for value in values],
                "customdata": [f"{value:+.3f} {result.unit}".replace("-", "−") for value in values],
                "hovertemplate": "%{source.label} → %{target.label}<br><b>%{customdata}</b><extra></extra>",
            },
            textfont={"color": INK[theme], "shadow": f"0 0 3px {BACKGROUND[theme]}", "size": 12},
        )
    )
    figure.update_layout(base_layout(theme))
    figure.update_layout(margin={"l": 8, "r": 8, "t": 10, "b": 14})
    return figure


def _layer(node: Node) -> int:
    """The layer of a head or an MLP; −1 for what enters before the first."""
    layer = node.layer if node.head is None else node.head[0]
    return -1 if layer is None else layer


def _box(result: Sankey, node: Node) -> str:
    if node.position is not None and result.str_tokens:
        return f"{glyphs(result.str_tokens[node.position])} {node}"
    return result.label(node)


def _note(result: Sankey, node: Node, through: float) -> str:
    amount = f"{through:+.3f} {result.unit}".replace("-", "−")
    sources = {"head": "through this head", "mlp": "from what this MLP writes", "bias": "from biases"}
    return amount if node.kind == "logit" else f"all paths {sources.get(node.kind, 'from here')}: {amount}"


def _sizes(used: Sequence[int], sources: Sequence[int], targets: Sequence[int], values: np.ndarray) -> list[float]:
    into: dict[int, float] = defaultdict(float)
    out: dict[int, float] = defaultdict(float)
    for start, end, value in zip(sources, targets, np.abs(values).tolist(), strict=True):
        out[start] += value
        into[end] += value
    return [max(into[i], out[i]) for i in used]


def _places(of: Sequence[int], sizes: Sequence[float]) -> tuple[list[float], list[float]]:
    """The middles of boxes in the columns `of` them, 0 to 1. plotly places nodes only where all are left to it."""
    columns: dict[int, list[int]] = defaultdict(list)
    for index, column in enumerate(of):
        columns[column].append(index)
    last = max(of, default=1) or 1
    gap = 0.9 / max(40, *(len(members) for members in columns.values()), 0)
    x, y = [0.0] * len(of), [0.0] * len(of)
    room = max((sum(sizes[i] for i in members) / (1 - gap * len(members)) for members in columns.values()), default=1.0)
    for column, members in columns.items():
        members.sort(key=lambda i: -sizes[i])
        height = sum(sizes[i] / room for i in members) + gap * (len(members) - 1)
        top = (1 - height) / 2
        for i in members:
            # plotly takes 0 for "not given".
            x[i] = min(max(_across(column, last), 0.001), 0.999)
            y[i] = min(max(top + sizes[i] / room / 2, 0.001), 0.999)
            top += sizes[i] / room + gap
    return x, y


def _across(column: int, last: int) -> float:
    """Return the place of a column: evenly, but with room for labels beside the first and the last."""
    if column in (0, last) or last == 2:
        return column / last
    first, end = max(1 / last, _ROOM), min(1 - 1 / last, 1 - _ROOM)
    return first + (end - first) * (column - 1) / (last - 2)


def _short(value: float) -> str:
    small = 0 < abs(value) < 0.005
    return f"{value:+.0e}".replace("-", "−") if small else f"{value:+.2f}".replace("-", "−")


def _colour(value: float, theme: Theme) -> str:
    return LINES[theme][0 if value >= 0 else 1]


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.45)"
