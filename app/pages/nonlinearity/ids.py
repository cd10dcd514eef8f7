"""Ids of the Non-linearity page."""

from __future__ import annotations

from aotlens.views import nonlinearity
from app.shell.ids import Ids

_CONTROLS = "preset inputs activation width depth seed knots bound tolerance construction auxiliary vector x1 x2 scale"

ids = Ids(
    "nonlinearity",
    _CONTROLS,
    "page panel drawing editor add meaning exactness body compiled facts layers error eta-slider eta-proof eta-caption",
    "heads one picker gate mask views besides",
    "chosen",  # store: what stands in the controls, by their ids; panels follow it
    "shown",  # store: the network that is shown, an address's state, its head as layer and head; None when none is
    "drawn",  # store: what the panels' pictures are of
    "eta",  # store: η of all ReLU layers as chosen on the slider, or None: those of the proof
    "head",  # store: [layer, head], as asked for
)

#: The ids of the controls.
CONTROLS = ids.named(f"{_CONTROLS} eta head")

#: Panels by what they show.
VIEWS = {
    ids.COMPILED: nonlinearity.LAYERS, ids.ERROR: nonlinearity.ERROR, ids.HEADS: nonlinearity.HEADS,
    ids.ONE: nonlinearity.HEAD, ids.GATE: nonlinearity.GATE, ids.MASK: nonlinearity.MASK,
}  # fmt: skip
