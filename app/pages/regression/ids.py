"""Ids of the In-context regression page."""

from __future__ import annotations

from app.shell.ids import Ids

ids = Ids(
    "regression",
    "page panel models checkpoint d dims nonzero noise scale mean skew seed axis open-card",
    "errors tabs layers grid grid-picture cells map prompt query view without how motifs support",
    "shown",  # store: what is asked (`Asked.to_dict`); None when nothing is shown
    "head",  # store: [layer, head] that is picked
    "looked",  # store: {layer, head} that the map shows
)

#: Panels of one model, which are asked for once they are in view.
PANELS = (ids.LAYERS, ids.GRID, ids.MAP, ids.WITHOUT, ids.MOTIFS, ids.SUPPORT)
