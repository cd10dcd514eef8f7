"""Ids of the Paths page."""

from __future__ import annotations

from app.shell.ids import Ids

ids = Ids(
    "paths",
    "checkpoint example text run count panel strip target versus by through k sum notes body orders top flow",
    "heads without views besides",
    "asked",  # store: what the address named, for the target of its own text
    "prompt",  # store: {checkpoint, text}, as submitted
    "position",  # store: the token after which the target stands, or None
    "shown",  # store: what is shown, a `service.Question`; None when nothing is
    "taken",  # store: the head or path that is taken away, as in the address, or None
)

#: Panels that are asked for once they are in view.
PANELS = (ids.TOP, ids.ORDERS, ids.HEADS, ids.WITHOUT, ids.FLOW)
