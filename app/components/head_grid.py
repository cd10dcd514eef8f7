"""The picture of all heads: one image, and over it one transparent button a head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from dash import html

from app import ids

if TYPE_CHECKING:
    from aotlens.heads import MotifScores


def head_grid() -> html.Div:
    """The picture and its cells, both filled by callbacks."""
    return html.Div(
        [
            html.Img(id=ids.GRID_PICTURE, src="", alt="", className="grid-picture", draggable="false"),
            html.Div(id=ids.GRID_CELLS, className="grid-cells", role="group"),
        ],
        id=ids.GRID_BOX,
        className="head-grid",
    )


def head_cells(n_layers: int, n_heads: int) -> list[html.Button]:
    """A button a head, row by row; arrows move between them, so the Tab key stops once."""
    return [
        html.Button(
            html.Span(f"{layer}.{head}", className="cell-label"),
            className="cell",
            tabIndex=-1,
            title=f"Head {layer}.{head}",
            **{"data-layer": str(layer), "data-head": str(head), "aria-label": f"Layer {layer}, head {head}"},
        )
        for layer in range(n_layers)
        for head in range(n_heads)
    ]


#: A head whose score for a motif is at least this is labelled with it.
_LABELLED = 0.4

#: How a motif is written in a cell, and in full.
MOTIF_NAMES = {
    "induction": ("ind", "induction"),
    "previous_token": ("prev", "previous token"),
    "current_token": ("self", "current token"),
    "first_token": ("first", "first token"),
}


def motif_labels(scores: MotifScores) -> dict[str, Any]:
    """For the browser, by "layer.head": the label of its strongest motif, if any, and a line with all its scores."""
    labels, lines = {}, {}
    for layer, head in np.ndindex(scores.induction.shape):
        values = {motif: float(scores[motif][layer, head]) for motif in MOTIF_NAMES}
        known = {motif: value for motif, value in values.items() if np.isfinite(value)}
        best = max(known, key=known.__getitem__, default=None)
        name = f"{layer}.{head}"
        if best is not None and known[best] >= _LABELLED:
            labels[name] = MOTIF_NAMES[best][0]
        lines[name] = "Mean attention on repeated random tokens: " + ", ".join(
            f"{MOTIF_NAMES[motif][1]} {value:.2f}" for motif, value in known.items()
        )
    return {"labels": labels, "lines": lines}


def grid_style(n_layers: int, n_heads: int) -> dict[str, Any]:
    """How the cells divide the picture, which has as many rows and columns."""
    return {"--layers": n_layers, "--heads": n_heads}
