"""Ids of the Distillation page."""

from __future__ import annotations

from app.shell.ids import Ids

ids = Ids(
    "distillation",
    "panel results width across meaning data body heads grid widths cloud costs all one curve on-text text run strip",
    "open form form-checkpoint form-corpus form-hidden form-heads form-seeds form-tokens form-costs form-pasted",
    "views besides",
    "shown",  # store: what is shown, a `service.Shown`; None when nothing is
    "asked",  # store: {of, layer, head}, the head that somebody chose, or None
    "picked",  # store: [layer, head], by the buttons
    "prompt",  # store: {text} or {length}
)

#: Panels that are asked for once they are in view.
PANELS = (ids.GRID, ids.WIDTHS, ids.CLOUD, ids.CURVE, ids.COSTS, ids.ALL, ids.ONE, ids.ON_TEXT)
