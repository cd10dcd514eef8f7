"""Ids of the Non-linearity page."""

from __future__ import annotations

from app.shell.ids import Ids

ids = Ids(
    "nonlinearity",
    "page panel preset inputs activation width depth seed knots drawing editor add bound tolerance",
    "construction auxiliary vector meaning body compiled facts error scale eta-slider eta-proof eta-caption",
    "heads one picker x1 x2 gate mask views besides",
    "shown",  # store: the network that is shown, an address's state; None when none is
    "eta",  # store: η of all ReLU layers as chosen on the slider, or None: those of the proof
    "head",  # store: [layer, head], as asked for
    "look",  # store: {layer, head, x}, of the head that is shown; None when none is
)
