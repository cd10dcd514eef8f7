"""What the Images page does in the browser (images.js): mark, choose, draw, go on; links to other pages."""

from __future__ import annotations

from app.pages.images.ids import ids
from app.shell import ids as shell
from app.shell.browser import Browser, Link, Source
from app.shell.props import inside, props, stores, values

CHOSEN = stores(image=ids.IMAGE, head=ids.HEAD, patch=ids.PATCH, off=ids.OFF)
LOOKS = values(layer=ids.LAYER, how=ids.HOW, target=ids.TARGET)

WRITES: dict[str, Source] = {
    **inside(ids.SHOWN, "checkpoint", "data", "of", "start", "own"),
    **CHOSEN,
    **LOOKS,
    **values(view=ids.VIEW, order=ids.ORDER, tab=ids.TABS),
}

BROWSER = (
    Browser(
        "show",
        inputs=stores(shown=ids.SHOWN)
        | CHOSEN
        | LOOKS
        | stores(
            cells=shell.drawn(ids.CELLS), gallery=shell.drawn(ids.GALLERY), ranked=shell.drawn(ids.RANKED),
            pictures=shell.drawn(ids.PICTURES),
        ),
        outputs=stores(picked=ids.PICKED) | props("className", remove=ids.REMOVE),
    ),
    Browser(
        "turn",
        inputs=props("n_clicks", earlier=ids.EARLIER, later=ids.LATER),
        state=stores(shown=ids.SHOWN),
        outputs=stores(start=ids.START),
        at_first=False,
    ),
    Browser("switchAllOn", inputs=props("n_clicks", clicks=ids.ALL_ON), outputs=stores(off=ids.OFF), at_first=False),
    Link(
        "circuits",
        to=ids.OPEN_CIRCUITS,
        checkpoint=(ids.SHOWN, "data.checkpoint"),
        head=(ids.PICKED, "data.layer", "data.head"),
    ),
    Link("checkpoints", to=ids.OPEN_CARD, checkpoint=(ids.SHOWN, "data.checkpoint")),
)  # fmt: skip
