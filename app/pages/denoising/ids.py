"""Ids of the In-context denoising page."""

from __future__ import annotations

from app.shell.ids import Ids

ids = Ids(
    "denoising",
    "page tab panel task energy tokens noise components alpha beta share steps seed best drawn plane errors",
    "training run trained curves matrices scales runs",
    "form form-task form-attention form-epochs form-rate form-context form-prompts form-runs",
    "shown",  # store: what the plane shows, an address's state without its query; None when nothing is
    "query",  # store: [x, y], where somebody has put the query, or None
    "picked",  # store: {training, run}, what of the trainings is shown; None when nothing is
)

#: Panels of a training, which are asked for once they are in view.
PANELS = (ids.CURVES, ids.MATRICES, ids.SCALES, ids.RUNS)
