"""Ids of the Heads page."""

from __future__ import annotations

from app.shell.ids import Ids

ids = Ids(
    "heads",
    "checkpoint example text run count view direction hide-first prompt-panel tokens strip grid grid-cells map",
    "map-canvas motifs-line columns next open-circuits open-paths open-atlas open-compare rank tabs ranking how",
    "corpus off-line all-on map-off map-off-canvas next-off losses losses-whole losses-change",
    "losses-change-heading",
    "why why-lines why-button",
    "continue new temperature top-k seed stop",
    "prompt",  # store: {checkpoint, text}, as submitted
    "analysis",  # store: {key, layers, heads, tokens}, of what is shown; None when nothing is
    "head",  # store: [layer, head]
    "position",  # store: the locked token's position, or None
    "direction-of",  # store: "to" or "from"
    "cell",  # store: {cell: [query, key] that is locked or None, against: what its score is compared with or None}
    "why-of",  # store: {key, head, cell, position, direction, against, off} of the explanation wanted, or None
    "motifs",  # store: {checkpoint, badges and sentences by "layer.head", scores by motif}
    "predicted",  # store: {key, position, off, how, corpus} of the predictions that are wanted, or None
    "run-of",  # store: {key, off, how, corpus} of what runs; None when nothing is shown
    "maps-of",  # store: stays empty; what asks for maps is called at first because it has an output
    "off",  # store: [[layer, head], …] of the heads that are switched off
)
