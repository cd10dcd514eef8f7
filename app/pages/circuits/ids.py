"""Ids of the Circuits page."""

from __future__ import annotations

from aotlens.views import circuits
from app.shell.ids import Ids

ids = Ids(
    "circuits",
    "checkpoint heads kind left right biases distance choice meaning exactness open-heads open-atlas body map map-rows",
    "map-columns overview overview-statistic block block-entries top top-entries row row-choice row-entries column",
    "column-choice column-entries eigenvalues singular singular-pairs composition composition-z composition-pairs",
    "copying copying-heads views besides",
    "head",  # store: [layer, head]
    "asked",  # store: what the address named, until it is checked
    "chosen",  # store: the circuit that is asked for, by its fields' names; panels follow it
    "shown",  # store: the circuit that is shown, as callbacks.py describes it; None when none is
    "block-at",  # store: [row block, column block], or None
    "drawn copied",  # stores: what the panels' pictures are of; of copying, which takes long, by itself
)

#: Panels by what they show.
VIEWS = {
    ids.MAP: circuits.MAP, ids.TOP: circuits.TOP, ids.ROW: circuits.ROW, ids.COLUMN: circuits.COLUMN,
    ids.OVERVIEW: circuits.OVERVIEW, ids.BLOCK: circuits.BLOCK, ids.EIGENVALUES: circuits.EIGENVALUES,
    ids.SINGULAR: circuits.SINGULAR, ids.COMPOSITION: circuits.COMPOSITION, ids.COPYING: circuits.COPYING,
}  # fmt: skip
