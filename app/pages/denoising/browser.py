"""What the In-context denoising page does in the browser (denoising.js): drag the query, or move it with the keys."""

from __future__ import annotations

from app.pages.denoising.ids import ids
from app.pages.denoising.service import PLANE
from app.shell import ids as shell
from app.shell.browser import Browser, Source
from app.shell.props import inside, props, stores, values

WRITES: dict[str, Source] = {
    **inside(ids.SHOWN, *PLANE),
    "query": (ids.QUERY, "data"),
    **values(tab=ids.TAB),
    **inside(ids.PICKED, "training", "run"),
}

BROWSER = (
    Browser("show", inputs=stores(shown=ids.SHOWN) | props("figure", plane=shell.graph(ids.PLANE))),
    Browser(
        "asDrawn",
        inputs=props("n_clicks", clicks=ids.DRAWN) | values(task=ids.TASK, seed=ids.SEED),
        outputs=stores(query=ids.QUERY),
        at_first=False,
    ),
)
