"""Lenses: a prompt's layers by positions, each cell with what the stream says; and what a step in it does, by head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from aotlens.plots.cells import cell_texts
from aotlens.plots.colours import Theme, base_layout, colorscale
from aotlens.plots.labels import axis_labels, glyphs, plotly_text
from aotlens.plots.matrix import matrix_map

if TYPE_CHECKING:
    from aotlens.paths import HeadLens, LogitJacobian, LogitLens

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
        colorbar={"thickness": 10, "outlinewidth": 0, "title": {"text": "probability", "side": "right"}, "len": 1.0},
    )  # fmt: skip
    axis = {"type": "category", "showgrid": False, "ticks": "", "zeroline": False}
    across = {**axis, "tickangle": -60, "title": {"text": "position"}}
    layout = base_layout(theme, height=160 + 26 * n_layers, xaxis=across, yaxis=axis)
    traces = [heatmap]
    if n_pos <= _WORDS:
        traces.append(cell_texts(heatmap.z, predictions, theme, x=columns, y=rows, low=0.0, high=1.0, size=11))
    return go.Figure(traces, layout=layout)


def head_lens_map(result: HeadLens, *, theme: Theme = "light") -> go.Figure:
    """Draw the most that each head adds to one output, layers down and heads across, with its first three outputs."""
    n_layers, n_heads, _ = result.added.shape
    tops, bottoms = (
        np.array([[_listed(result, row[:3]) for row in layer] for layer in outputs])
        for outputs in (result.promoted, result.suppressed)
    )
    heatmap = go.Heatmap(
        z=result.added[..., 0].astype(np.float32), x=[str(head) for head in range(n_heads)],
        y=[str(layer) for layer in range(n_layers)], zmin=0, zmax=float(result.added.max()), text=tops,
        customdata=bottoms,
        colorscale=colorscale("sequential", theme),
        hovertemplate="head %{y}.%{x}<br>promotes<br>%{text}<br>suppresses<br>%{customdata}<br><b>%{z:+.3f} logits</b> "
        "to the first<extra></extra>",
        colorbar={"thickness": 10, "outlinewidth": 0, "title": {"text": "logits above the mean", "side": "right"}},
    )  # fmt: skip
    axis = {"type": "category", "showgrid": False, "ticks": "", "zeroline": False}
    traces = [heatmap]
    if n_heads <= _HEADS:
        high = float(result.added.max())
        traces.append(cell_texts(heatmap.z, tops, theme, x=heatmap.x, y=heatmap.y, low=0.0, high=high, size=11))
    return go.Figure(
        traces,
        layout=base_layout(
            theme, height=140 + 56 * n_layers, xaxis={**axis, "title": {"text": "head"}},
            yaxis={**axis, "autorange": "reversed", "title": {"text": "layer"}},
        ),
    )  # fmt: skip


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
