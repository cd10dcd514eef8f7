"""The picture of all heads: one image, and over it one transparent button a head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from dash import html

from app.pages.heads.ids import ids
from app.shell.drawn import drawn

if TYPE_CHECKING:
    from aotlens.heads import HeadLabels, MotifScores


def head_grid() -> html.Div:
    """The picture and its cells, both filled by callbacks."""
    return html.Div(
        [
            html.Img(id=ids.GRID_PICTURE, src="", alt="", className="grid-picture", draggable="false"),
            drawn(ids.GRID_CELLS, "grid-cells", "Heads", **{"data-switches": ids.OFF}),
        ],
        id=ids.GRID_BOX,
        className="head-grid",
    )


def head_cells(n_layers: int, n_heads: int) -> list[html.Button]:
    """Two buttons a head, row by row: one shows it, one in its corner switches it off; arrows move between heads, so
    the Tab key stops once at each kind."""
    cells = []
    for layer, head in np.ndindex(n_layers, n_heads):
        place = {"data-layer": str(layer), "data-head": str(head)}
        common = {"tabIndex": -1, "style": {"grid-area": f"{layer + 1} / {head + 1}"}}
        label = html.Span(f"{layer}.{head}", className="cell-label")
        cells += [
            html.Button(label, className="cell", **common, **place, **{"aria-label": f"Head {layer}.{head}"}),
            html.Button(
                className="head-switch", **common, **place, **{"aria-label": f"Switch off head {layer}.{head}"}
            ),
        ]
    return cells


def motif_labels(scores: MotifScores, labels: HeadLabels) -> dict[str, Any]:
    """For the browser, by "layer.head": scores of each motif that the model can show; the badge of a head's strongest
    motif, if any, and a sentence that explains it.
    """
    from aotlens.heads import MOTIFS

    badges, says, by_motif = {}, {}, {}
    for motif in scores.motifs:
        finite = {_name(at): float(value) for at, value in np.ndenumerate(scores[motif]) if np.isfinite(value)}
        if finite:
            by_motif[motif] = finite
    for at, label in np.ndenumerate(np.array(labels.names)):
        motif = MOTIFS.get(str(label))
        if motif is not None:
            badges[_name(at)] = motif.badge
            says[_name(at)] = f"{motif.badge}: {motif.title}. {labels.sentence(at)}"
    return {"badges": badges, "says": says, "scores": by_motif}


def _name(at: tuple[int, ...]) -> str:
    return f"{at[0]}.{at[1]}"


def grid_style(n_layers: int, n_heads: int) -> dict[str, Any]:
    """How the cells divide the picture, which has as many rows and columns."""
    return {"--layers": n_layers, "--heads": n_heads}
