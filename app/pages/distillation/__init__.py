"""Distillation: can a small feed-forward network stand in for a head?"""

from __future__ import annotations

from app.core import Core
from app.pages.distillation import callbacks, form_callbacks
from app.pages.distillation.address import ADDRESS
from app.pages.distillation.ids import PANELS, ids
from app.pages.distillation.layout import layout
from app.pages.distillation.python import python
from app.pages.distillation.service import Distillations
from app.shell import ids as shell
from app.shell.app import App
from app.shell.browser import Browser
from app.shell.page import Page
from app.shell.props import inside, props, stores, values
from app.shell.sharing import mark_head, when_seen


def register(app: App, core: Core, service: Distillations) -> None:
    """Register the page's callbacks."""
    mark_head(app, ids.HEADS, ids.SHOWN)
    when_seen(app, ids.SHOWN, PANELS)
    callbacks.register(app, core, service)
    form_callbacks.register(app, service)


PAGE = Page(
    title="Distillation",
    address=ADDRESS,
    service=Distillations,
    layout=layout,
    register=register,
    python=python,
    writes={
        **inside(ids.SHOWN, "results", "width", "across", "of"),
        "head": (ids.SHOWN, "data.layer", "data.head"),
        **inside(ids.PROMPT, "text"),
        **values(corpus=ids.FORM_CORPUS, view=ids.VIEWS, beside=ids.BESIDES),
    },
    browser=(
        Browser(
            "pick",
            inputs=props("clickData", grid=shell.graph(ids.GRID), cloud=shell.graph(ids.CLOUD))
            | props("cellClicked", cell=shell.table(ids.ALL))
            | stores(picked=ids.PICKED),
            state=stores(shown=ids.SHOWN),
            outputs=stores(asked=ids.ASKED),
            at_first=False,
        ),
        Browser(
            "submit",
            inputs=props("n_clicks", clicks=ids.RUN),
            state=values(text=ids.TEXT),
            outputs=stores(prompt=ids.PROMPT),
            at_first=False,
        ),
        Browser(
            "show",
            inputs=stores(shown=ids.SHOWN, strip=shell.drawn(ids.STRIP))
            | props("children", one=shell.caption(ids.ONE)),
        ),
        Browser("showMap", inputs=stores(mapped=ids.MAPPED)),
    ),
    sends={ids.ASKED: {"of": "", "layer": 0, "head": 0}},
    file=__file__,
)
