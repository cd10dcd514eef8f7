"""The Subspace denoising page's functions in the browser (subspaces.js): move through the layers."""

from __future__ import annotations

from app.pages.subspaces.address import ADDRESS
from app.pages.subspaces.ids import ids
from app.pages.subspaces.service import LOOKS
from app.shell import ids as shell
from app.shell.browser import Browser, Source
from app.shell.props import children, inside, props, stores, values

WRITES: dict[str, Source] = {
    **inside(ids.SHOWN, *(name for name in ADDRESS.names() if name not in LOOKS)),
    **values(tab=ids.TAB, layer=ids.LAYER, picture=ids.PICTURE, head=ids.HEAD),
    **inside(ids.AUDITED, "checkpoint", "corpus", "draws"),
}

BROWSER = (
    Browser(
        "move",
        inputs=values(layer=ids.LAYER)
        | props(
            "figure", cloud=shell.graph(ids.CLOUD), snr=shell.graph(ids.SNR), membership=shell.graph(ids.MEMBERSHIP)
        )
        | children(captions=ids.CAPTIONS),
    ),
    Browser("show", inputs=stores(shown=ids.SHOWN)),
)
