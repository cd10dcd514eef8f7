"""A prediction's parts: what paths of each length add, its flow from tokens through heads, scores traced back; and
lenses, which show what the stream says at each layer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from aotlens.conventions import glyphs, minus
from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET_INK, Theme, base_layout, colorscale
from aotlens.plots.graphs import LayeredLink, layered_graph
from aotlens.plots.primitives import (
    CELL_AXIS,
    axis_labels,
    cell_texts,
    colour_bar,
    faint,
    head_map,
    matrix_map,
    plotly_text,
)

if TYPE_CHECKING:
    from aotlens.paths import (
        HeadLens,
        LogitByOrder,
        LogitJacobian,
        LogitLens,
        PairSums,
        PathExpansion,
        Sankey,
        TermImportance,
        Trace,
    )
    from aotlens.paths.of_logit import Node

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
    across = {"title": {"text": "heads that a path passes"}, "dtick": 1, "showgrid": False, "zeroline": False}
    up = {"title": {"text": quantity}, "zeroline": True, "zerolinewidth": 1.5}
    layout = base_layout(theme, xaxis=across, yaxis=up, margin={"l": 8, "r": 8, "t": 24, "b": 8})
    return go.Figure(bars, layout=layout)


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
    return go.Figure(
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
                "color": [faint(_colour(value, theme), 0.45) for value in values],
                "customdata": [f"{value:+.3f} {result.unit}".replace("-", "−") for value in values],
                "hovertemplate": "%{source.label} → %{target.label}<br><b>%{customdata}</b><extra></extra>",
            },
            textfont={"color": INK[theme], "shadow": f"0 0 3px {BACKGROUND[theme]}", "size": 12},
        ),
        layout=base_layout(theme, margin={"l": 8, "r": 8, "t": 10, "b": 14}),
    )


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


#: Positions, and heads, up to which each cell has its words in it.
_WORDS, _HEADS = 24, 12


def lens_map(result: LogitLens, *, theme: Theme = "light") -> go.Figure:
    """Draw the probability of what the stream says, layers up and positions across; words in the cells of short
    prompts."""
    n_layers, n_pos = result.kl.shape
    predictions = np.array(
        [[plotly_text(glyphs(result.says(layer, position))) for position in range(n_pos)] for layer in range(n_layers)]
    )
    rows = [f"before {layer}" for layer in range(n_layers - 1)] + ["after the last"]
    words = result.str_tokens
    columns = [str(position) for position in range(n_pos)] if words is None else axis_labels(words)
    heatmap = go.Heatmap(
        z=result.probabilities[..., 0].astype(np.float32), x=columns, y=rows, zmin=0, zmax=1, text=predictions,
        customdata=np.stack([result.kl, result.rank], -1), colorscale=colorscale("sequential", theme),
        hovertemplate="%{y}, at %{x}<br><b>%{text}</b>  %{z:.3f}<br>KL %{customdata[0]:.3f} nats; the model’s first "
        "choice has rank %{customdata[1]}<extra></extra>",
        colorbar=colour_bar("probability", len=1.0),
    )  # fmt: skip
    across = {**CELL_AXIS, "tickangle": -60, "title": {"text": "position"}}
    layout = base_layout(theme, height=160 + 26 * n_layers, xaxis=across, yaxis=CELL_AXIS)
    traces = [heatmap]
    if n_pos <= _WORDS:
        traces.append(cell_texts(heatmap.z, predictions, theme, x=columns, y=rows, low=0.0, high=1.0, size=11))
    return go.Figure(traces, layout=layout)


def head_lens_map(result: HeadLens, *, theme: Theme = "light") -> go.Figure:
    """Draw the most that each head adds to one output, layers down and heads across, with its first three outputs."""
    n_layers, n_heads, _ = result.added.shape
    high = float(result.added.max())
    tops, bottoms = (
        np.array([[_listed(result, row[:3]) for row in layer] for layer in outputs])
        for outputs in (result.promoted, result.suppressed)
    )
    heatmap = go.Heatmap(
        z=result.added[..., 0].astype(np.float32), x=[str(head) for head in range(n_heads)],
        y=[str(layer) for layer in range(n_layers)], zmin=0, zmax=high, text=tops,
        customdata=bottoms,
        colorscale=colorscale("sequential", theme),
        hovertemplate="head %{y}.%{x}<br>promotes<br>%{text}<br>suppresses<br>%{customdata}<br><b>%{z:+.3f} logits</b> "
        "to the first<extra></extra>",
        colorbar=colour_bar("logits above the mean"),
    )  # fmt: skip
    traces = [heatmap]
    if n_heads <= _HEADS:
        traces.append(cell_texts(heatmap.z, tops, theme, x=heatmap.x, y=heatmap.y, low=0.0, high=high, size=11))
    across = {**CELL_AXIS, "title": {"text": "head"}}
    down = {**CELL_AXIS, "autorange": "reversed", "title": {"text": "layer"}}
    return go.Figure(traces, layout=base_layout(theme, height=140 + 56 * n_layers, xaxis=across, yaxis=down))


def _listed(result: HeadLens, tokens: np.ndarray) -> str:
    return "<br>".join(plotly_text(glyphs(result.words.get(int(token), str(token)))) for token in tokens)


def jacobian_map(result: LogitJacobian, *, theme: Theme = "light") -> go.Figure:
    """Draw the strength with which a step at each position moves the logit: read by the read-out, or first by each
    head."""
    n_layers, n_heads, n_pos, _ = result.by_head.shape
    names = [f"{result.layer + layer}.{head}" for layer, head in np.ndindex(n_layers, n_heads)]
    values = np.concatenate([result.direct[None], result.by_head.reshape(-1, *result.direct.shape)])
    lengths = np.linalg.norm(values, axis=-1)
    words = result.str_tokens
    columns = [f"{position} {glyphs(word)}".strip() for position, word in enumerate(words or [""] * n_pos)]
    return matrix_map(
        lengths, ["read out", *names], columns, quantity="logits a unit", row_title="first read by",
        column_title="position", theme=theme,
    )  # fmt: skip


def orders(
    expansion: PathExpansion, *, target: int | tuple[int, int], position: int = -1, theme: Theme = "light"
) -> go.Figure:
    """Draw the contribution of all paths through k heads to the logit of `target`, or a difference of two, at
    `position`."""
    return logit_orders(expansion.logit_by_order(position, target), theme=theme)


def pair_sums(result: PairSums, *, theme: Theme = "light") -> go.Figure:
    """Draw all pairs of paths of a score in groups, query side down and key side across."""
    title = {"orders": "heads on the", "heads": "last head,", "sources": "source,"}[result.by]
    values = result.values.double().cpu().numpy()
    return matrix_map(
        values, result.names, result.names, quantity=result.unit, row_title=f"{title} query side",
        column_title=f"{title} key side", theme=theme,
    )  # fmt: skip


def importance(result: TermImportance, *, of: str = "orders", theme: Theme = "light") -> go.Figure:
    """Draw the decrease of the loss by paths of each length (`of="orders"`), or by each head, given all others
    (`of="heads"`).

    `of="heads alone"` shows what a head takes off the loss of a model without any other.
    """
    quantity = "nats a token off the loss"
    if of == "orders":
        return order_bars(result.by_order, quantity=quantity, first=1, theme=theme)
    values = {"heads": result.given_the_rest, "heads alone": result.alone}.get(of)
    if values is None:
        raise ValueError(f"plot: of={of!r}: expected orders, heads or heads alone.")
    if np.isnan(values).any():
        raise ValueError("plot: heads were not measured; term_importance(model, tokens, heads=True) does.")
    return head_map(values, quantity, theme)


def traced(result: Trace, *, theme: Theme = "light") -> go.Figure:
    """Draw the cells behind one cell, in columns of layers, with what each is made of: blue is the key side, orange the
    query side, dashed is negative."""
    layout = result.layout()
    links = []
    for link in layout.links:
        ends = " → ".join(plotly_text(layout.boxes[place].title) for place in (link.start, link.end))
        text = f"{link.side} side: {ends}<br><b>{minus(link.nats, '+.3f')} nats</b>, {link.share:.0%} of the side"
        links.append(
            LayeredLink(
                link.start, link.end, link.share, text, int(link.side == "query"), "dash" if link.nats < 0 else "solid"
            )
        )
    return layered_graph(layout.boxes, links, theme=theme)
