"""Every head's map side by side, as a figure for a paper: title, layers, heads, and a scale with its unit."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Bool, Float

from aotlens.plots.colours import BACKGROUND, INK, QUIET_INK, Theme, base_layout, colorscale
from aotlens.plots.thumbnails import TRANSPARENT, pool, shade

#: Pixels of the figure that a map takes, with the line of text above it; and entries a side that it keeps at most.
_PITCH = 118
_CELL = 96
#: The part of that which is the map.
_MAP = 0.8


def all_heads_maps(
    values: Float[np.ndarray, "layer head query key"],
    visible: Bool[np.ndarray, "mask query key"] | None = None,
    *,
    quantity: str,
    title: str,
    theme: Theme = "light",
) -> go.Figure:
    """Draw a grid, row = layer, column = head; in each map, queries go down and keys across.

    Each map has its own scale, up to its largest magnitude, which stands above it in the unit that `quantity` names;
    the colour bar is in parts of that. `visible` (one mask, or one per head) hides the rest. Maps longer than 96 tokens
    are shrunk by a whole factor, by the entry largest in magnitude of each block.
    """
    n_layers, n_heads = values.shape[:2]
    seen = values if visible is None else np.where(visible[None], values, np.float32(0))
    signed = bool((seen < 0).any())
    maps = shade(pool(seen, _CELL), "diverging" if signed else "sequential")
    side = maps.shape[-1]
    pitch = round(side / _MAP) if side > 8 else side + 2
    z = np.zeros((n_layers * pitch, n_heads * pitch), dtype=np.int8 if signed else np.uint8)
    shapes, annotations = [], []
    for layer, head in np.ndindex(n_layers, n_heads):
        top, left = layer * pitch + pitch - side, head * pitch
        z[top : top + side, left : left + side] = maps[layer, head]
        frame = {"x0": left - 0.5, "x1": left + side - 0.5, "y0": top - 0.5, "y1": top + side - 0.5}
        shapes.append({"type": "rect", **frame, "line": {"width": 0.7, "color": QUIET_INK[theme]}})
        largest = float(np.abs(seen[layer, head]).max())
        annotations.append(
            {"text": f"<b>{layer}.{head}</b> {largest:.2g}", "x": left - 0.5, "y": top - 0.5, "xanchor": "left",
             "yanchor": "bottom", "showarrow": False, "font": {"size": 12}, "borderpad": 1}
        )  # fmt: skip
    steps = (TRANSPARENT - 1) // 2 if signed else TRANSPARENT - 1
    ticks = {-1.0: "−1", -0.5: "−½", 0.0: "0", 0.5: "½", 1.0: "1"}
    parts = [part for part in ticks if signed or part >= 0]
    figure = go.Figure(
        go.Heatmap(
            z=z,
            zmin=-steps if signed else 0,
            zmax=steps,
            colorscale=colorscale("diverging" if signed else "sequential", theme),
            hoverinfo="skip",
            colorbar={
                "title": {"text": f"{quantity},<br>part of the head's<br>largest (printed<br>above its map)"},
                "tickvals": [part * steps for part in parts], "ticktext": [ticks[part] for part in parts],
                "thickness": 14, "len": 1.0 if n_layers < 3 else 0.5, "outlinewidth": 0.5,
            },
        )
    )  # fmt: skip
    plain: dict[str, Any] = {"showgrid": False, "zeroline": False, "showline": False, "ticks": ""}
    middle = pitch - side / 2
    figure.update_layout(
        **{**base_layout(theme), "paper_bgcolor": BACKGROUND[theme], "margin": {"l": 64, "r": 16, "t": 56, "b": 56}},
        width=_PITCH * n_heads + 240,
        height=max(_PITCH * n_layers + 120, 250),
        title={"text": title, "font": {"size": 16, "color": INK[theme]}, "x": 0, "xref": "container", "xanchor": "left",
               "pad": {"l": 16}},
        shapes=shapes,
        annotations=annotations,
    )  # fmt: skip
    figure.update_xaxes(
        **plain, title="head", tickvals=[head * pitch + side / 2 for head in range(n_heads)],
        ticktext=list(map(str, range(n_heads))), range=[-0.5, n_heads * pitch - 0.5],
    )  # fmt: skip
    figure.update_yaxes(
        **plain, title="layer", tickvals=[layer * pitch + middle for layer in range(n_layers)],
        ticktext=list(map(str, range(n_layers))), range=[n_layers * pitch - 0.5, -0.5],
    )  # fmt: skip
    return figure
