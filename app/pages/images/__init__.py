"""Images: what every head of a model attends to, what patches add to a class, and the same with heads ablated."""

from __future__ import annotations

from app.pages.images import callbacks, maps, own
from app.pages.images.address import ADDRESS
from app.pages.images.callbacks import python
from app.pages.images.ids import ids
from app.pages.images.layout import layout
from app.pages.images.service import Images
from app.shell import ids as shell
from app.shell.browser import Browser, Link
from app.shell.page import Page, register_all
from app.shell.props import inside, props, stores, values

_FORM = values(checkpoint=ids.CHECKPOINT, data=ids.DATA, of=ids.OF, how=ids.HOW, target=ids.TARGET) | stores(
    start=ids.START, own=ids.OWN, image=ids.IMAGE, off=ids.OFF
)

PAGE = Page(
    title="Images",
    address=ADDRESS,
    service=Images,
    layout=layout,
    register=register_all(callbacks, maps, own),
    python=python,
    writes={
        **inside(ids.SHOWN, "checkpoint", "data", "of", "start", "own"),
        **stores(image=ids.IMAGE, patch=ids.PATCH, off=ids.OFF),
        "layer": (ids.HEAD, "data.0"),
        "head": (ids.HEAD, "data.1"),
        **values(view=ids.VIEW, order=ids.ORDER, how=ids.HOW, target=ids.TARGET, tab=ids.TABS),
    },
    browser=(
        Browser("choose", inputs=_FORM, state=stores(shown=ids.SHOWN)),
        Browser(
            "show",
            inputs=stores(
                shown=ids.SHOWN, ranking=ids.RANKING, added=ids.ADDED, taken=ids.TAKEN,
                ranked=shell.drawn(ids.RANKED), likeliest=shell.drawn(ids.LIKELIEST),
            ) | values(layer=ids.LAYER, view=ids.VIEW, order=ids.ORDER),
            # The page's script has put these there itself: a click waits for one callback less.
            state=stores(image=ids.IMAGE, head=ids.HEAD, patch=ids.PATCH, off=ids.OFF),
            outputs=stores(measured=ids.MEASURED) | props("className", remove=ids.REMOVE),
        ),
        Link(
            "circuits",
            to=ids.OPEN_CIRCUITS,
            checkpoint=(ids.SHOWN, "data.checkpoint"),
            head=(ids.HEAD, "data"),
        ),
        Link("checkpoints", to=ids.OPEN_CARD, checkpoint=(ids.SHOWN, "data.checkpoint")),
    ),
    sends={
        ids.CHOSEN: {
            "checkpoint": "", "data": "", "of": 0, "start": 0, "own": [""], "image": 0, "off": [(0, 1)], "how": "",
            "target": 0,
        },
        ids.HEAD: (0, 1),
        ids.MEASURED: {"checkpoint": "", "data": ""},
    },
    file=__file__,
)  # fmt: skip
