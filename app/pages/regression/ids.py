"""Ids of the In-context regression page, and what it does in the browser (regression.js)."""

from __future__ import annotations

from aotlens.views.regression import LAYERS, MOTIFS, PARAMETERS, SUPPORT, WITHOUT
from app.shell import ids as shell
from app.shell.browser import Browser, Link, Source
from app.shell.ids import Ids
from app.shell.props import inside, stores, values

ids = Ids(
    "regression",
    "page panel models checkpoint d dims nonzero noise scale mean skew seed axis open-card",
    "errors tabs layers grid cells map canvas prompt query view without how motifs support",
    "shown",  # store: what is asked, by the fields of the address; None when nothing is shown
    "head",  # store: [layer, head] that is picked
    "drawn",  # store: what the panels' pictures are of
)

#: Views of one model, which are asked for once they are in view.
PANELS = {ids.LAYERS: LAYERS, ids.WITHOUT: WITHOUT, ids.MOTIFS: MOTIFS, ids.SUPPORT: SUPPORT}

WRITES: dict[str, Source] = {
    "models": (ids.SHOWN, "data.named"),
    **inside(ids.SHOWN, "checkpoint", "dims", "nonzero", *PARAMETERS),
    **values(axis=ids.AXIS, tab=ids.TABS, query=ids.QUERY, view=ids.VIEW, how=ids.HOW, prompt=ids.PROMPT),
    **stores(head=ids.HEAD),
}

BROWSER = (
    Browser(
        "show",
        inputs=stores(shown=ids.SHOWN, grid=shell.seen(ids.GRID), map=shell.seen(ids.MAP), head=ids.HEAD)
        | values(prompt=ids.PROMPT, view=ids.VIEW, query=ids.QUERY),
    ),
    Link("checkpoints", to=ids.OPEN_CARD, checkpoint=(ids.SHOWN, "data.checkpoint")),
)
