"""The picture of all heads: one image, and over it one transparent button a head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from dash import html

from app.pages.heads.ids import ids

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
            **{"data-layer": str(layer), "data-head": str(head), "aria-label": f"Head {layer}.{head}"},
        )
        for layer in range(n_layers)
        for head in range(n_heads)
    ]


def motif_labels(scores: MotifScores) -> dict[str, Any]:
    """For the browser, by "layer.head": the badge of its strongest motif, if any, and a line with all its scores."""
    from aotlens.heads import MOTIFS

    badges, lines = {}, {}
    for (layer, head), label in np.ndenumerate(np.array(scores.labels())):
        name = f"{layer}.{head}"
        values = {motif: scores[motif][layer, head] for motif in scores.motifs}
        if label in MOTIFS:
            badges[name] = MOTIFS[label].badge
        lines[name] = "Mean attention on repeated random tokens: " + ", ".join(
            f"{motif.replace('_', ' ')} {value:.2f}" for motif, value in values.items() if np.isfinite(value)
        )
    return {"labels": badges, "lines": lines}


def grid_style(n_layers: int, n_heads: int) -> dict[str, Any]:
    """How the cells divide the picture, which has as many rows and columns."""
    return {"--layers": n_layers, "--heads": n_heads}
