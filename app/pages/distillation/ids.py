"""Ids of the Distillation page."""

from __future__ import annotations

from aotlens.views import distillation as views
from app.shell.ids import Ids

ids = Ids(
    "distillation",
    "panel results width across meaning data body heads grid widths cloud costs all one curve on-text text run strip",
    "open form form-checkpoint form-corpus form-hidden form-heads form-seeds form-tokens form-costs form-pasted",
    "views besides canvas",
    "shown",  # store: what is shown, a `service.Shown`; None when nothing is
    "asked",  # store: {of, layer, head}, the head that somebody chose, or None
    "picked",  # store: [layer, head], by the buttons
    "prompt",  # store: {text} or {length}
    "mapped",  # store: {checkpoint, text, head} of the map; None where there is none
    "drawn",  # store: what the panels' pictures are of
)

#: Panels that show views.
VIEWS = {
    ids.GRID: views.HEADS, ids.WIDTHS: views.WIDTHS, ids.CLOUD: views.ATTENTION, ids.COSTS: views.COSTS,
    ids.ONE: views.ONE, ids.CURVE: views.CURVE,
}  # fmt: skip
#: The others that are asked for once they are in view.
PANELS = (ids.ALL, ids.ON_TEXT)
