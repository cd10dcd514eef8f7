"""Ids of the Heads page, and the views of its panels."""

from __future__ import annotations

from aotlens.views import View, heads
from aotlens.views.scores import PAIRS
from app.shell.ids import Ids

ids = Ids(
    "heads",
    "checkpoint example text run count view direction hide-first prompt-panel tokens strip grid grid-cells map",
    "map-canvas motifs-line columns next open-circuits open-paths open-atlas open-compare rank tabs ranking how",
    "corpus off-line all-on map-off map-off-canvas next-off losses losses-whole losses-change",
    "losses-change-heading next-lines next-off-lines",
    "why why-pairs why-button",
    "continue new temperature top-k seed stop",
    "prompt",  # store: {checkpoint, text}, as submitted
    "analysis",  # store: {key, prompt, layers, heads, tokens}, of what is shown; None when nothing is
    "head",  # store: [layer, head]
    "position",  # store: the locked token's position, or None
    "cell",  # store: {cell: [query, key] that is locked or None, against: what its score is compared with or None}
    "why-of",  # store: {prompt, head, cell, position, direction, against, off} of the explanation wanted, or None
    "scored",  # store: the checkpoint whose heads are scored; None when nothing is shown
    "motifs",  # store: {badges and sentences by "layer.head", scores by motif}
    "predicted",  # store: {prompt, position, off, how, corpus} of the predictions that are wanted, or None
    "run-of",  # store: {prompt, off, how, corpus} of what runs; None when nothing is shown
    "listed measured explained",  # stores: what the panels that follow these three show
    "off",  # store: [[layer, head], …] of the heads that are switched off
)

VIEWS: dict[str, View] = {
    ids.MAP: heads.MAP,
    ids.MAP_OFF: heads.ABLATED_MAP,
    ids.NEXT: heads.PREDICTIONS,
    ids.NEXT_OFF: heads.ABLATED_PREDICTIONS,
    ids.LOSSES: heads.LOSSES,
    ids.WHY: PAIRS,
}
