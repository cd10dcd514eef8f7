"""Ids of the Circuits page."""

from __future__ import annotations

from app.shell.ids import Ids

ids = Ids(
    "circuits",
    "checkpoint heads kind left right biases distance choice meaning exactness open-heads open-atlas body map map-rows",
    "map-columns overview overview-statistic block top top-largest top-smallest row row-choice row-largest",
    "row-smallest column column-choice column-largest column-smallest eigenvalues singular composition",
    "composition-z copying views besides",
    "head",  # store: [layer, head]
    "asked",  # store: what the address named, until it is checked
    "through",  # store: the circuit that a composition leads to: {layer, head, kind, left, right}
    "shown",  # store: the circuit that is shown, as service.py describes it; None when none is
    "block-at",  # store: [row block, column block], or None
)

#: Panels that are asked for once they are in view.
PANELS = (
    ids.MAP, ids.TOP, ids.ROW, ids.COLUMN, ids.OVERVIEW, ids.BLOCK, ids.EIGENVALUES, ids.SINGULAR, ids.COMPOSITION,
    ids.COPYING,
)  # fmt: skip
