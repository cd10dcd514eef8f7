"""The large attention map of one head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Bool, Float, UInt8

from aotlens.plots.colours import INK, Scale, Theme, base_layout, colorscale
from aotlens.plots.labels import axis_labels

#: The titles of a map's numbers, by the names that `AttentionPatterns.quantity` takes.
QUANTITIES: Mapping[str, str] = {
    "attention": "attention", "weighted": "attention · ‖v‖", "scores": "score (nats)"
}  # fmt: skip
#: The number of tokens up to which each has its label.
_ALL_LABELS = 44


def attention_map(
    values: Float[np.ndarray, "query key"],
    str_tokens: Sequence[str],
    *,
    visible: Bool[np.ndarray, "query key"] | None = None,
    quantity: str = "attention",
    theme: Theme = "light",
    span: tuple[float, float] | None = None,
) -> go.Figure:
    """Draw a heatmap, queries down and keys across, with exact values on hover.

    `visible` blanks the rest: keys in a query's future, or a key left out so as not to drown the scale. Values with a
    sign (scores) get a diverging scale around 0. `span`, the least and the greatest value of several maps, gives each
    of them the scale of all. The array goes to the browser as float32, never as a list: 10 to 100
    times smaller, and as much faster.
    """
    n_pos = len(str_tokens)
    if values.shape != (n_pos, n_pos):
        raise ValueError(f"attention_map: expected {n_pos} × {n_pos} values for {n_pos} tokens, got {values.shape}.")
    cells = values.astype(np.float32)
    if visible is not None:
        cells[~visible] = np.nan
    least, most = span_of(cells) if span is None else span
    scale: Scale = "diverging" if least < 0 else "sequential"
    top = max(most, -least) or 1.0
    labels = axis_labels(str_tokens)
    bar: dict[str, Any] = {"thickness": 10, "outlinewidth": 0, "title": {"text": quantity, "side": "right"}, "len": 1.0}
    hover = f"query  %{{y}}<br>key  %{{x}}<br><b>{quantity} %{{z:.4f}}</b><extra></extra>"
    heatmap = go.Heatmap(
        x=labels, y=labels, z=cells, zmin=-top if least < 0 else 0.0, zmax=top, colorscale=colorscale(scale, theme),
        colorbar=bar, hoverongaps=False, hovertemplate=hover,
    )  # fmt: skip
    axis = {
        "type": "category",
        "showgrid": False,
        "ticks": "",
        # Every label while they can be read; fewer, chosen by plotly, beyond.
        "tickfont": {"size": 11 if n_pos <= 32 else 9, "color": INK[theme]},
        **({"dtick": 1} if n_pos <= _ALL_LABELS else {}),
        "zeroline": False,
        "constrain": "domain",
    }
    keys = {**axis, "tickangle": -90, "title": {"text": "key (source)"}}
    queries = {**axis, "autorange": "reversed", "title": {"text": "query (destination)"}}
    return go.Figure(heatmap, layout=base_layout(theme, xaxis=keys, yaxis=queries))


def to_levels(values: Float[np.ndarray, "*shape"], top: float, scale: Scale) -> UInt8[np.ndarray, "*shape"]:
    """Return values from 0 to `top` as 0 to 255, or, if diverging, from −`top` to `top` as 1 to 255. NaN is drawn as 0
    is."""
    zero, steps = (128, 127) if scale == "diverging" else (0, 255)
    return np.rint(zero + steps * np.where(np.isnan(values), np.float32(0), values) / top).astype(np.uint8)


def span_of(*maps: Float[np.ndarray, "_ _"]) -> tuple[float, float]:
    """Return the least and the greatest value of maps; (0, 0) where they show nothing."""
    finite = np.concatenate([values[np.isfinite(values)] for values in maps])
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
