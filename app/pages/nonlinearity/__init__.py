"""Non-linearity: a feed-forward network compiled into attention."""

from __future__ import annotations

from app.pages.nonlinearity.address import ADDRESS
from app.pages.nonlinearity.callbacks import python, register
from app.pages.nonlinearity.ids import CONTROLS, ids
from app.pages.nonlinearity.layout import layout
from app.pages.nonlinearity.service import Nonlinearity
from app.shell import ids as shell
from app.shell.browser import Browser
from app.shell.page import Page
from app.shell.props import inside, props, stores, values

_IN_STORES = ("eta", "head")
_OF_HEAD = ("head", "view", "beside")

PAGE = Page(
    title="Non-linearity",
    address=ADDRESS,
    service=Nonlinearity,
    layout=layout,
    register=register,
    python=python,
    writes={
        **inside(ids.SHOWN, *(name for name in ADDRESS.names() if name not in _OF_HEAD)),
        "head": (ids.SHOWN, "data.layer", "data.head"),
        **values(view=ids.VIEWS, beside=ids.BESIDES),
    },
    browser=(
        Browser(
            "choose",
            inputs=values(**{name: id for name, id in CONTROLS.items() if name not in _IN_STORES})
            | stores(**{name: CONTROLS[name] for name in _IN_STORES}),
            outputs=stores(chosen=ids.CHOSEN),
        ),
        Browser("slide", inputs=values(value=ids.ETA_SLIDER), state=stores(shown=ids.SHOWN), at_first=False),
        Browser(
            "pick",
            inputs=props("cellClicked", cell=shell.table(ids.HEADS)) | props("clickData", point=shell.graph(ids.ERROR)),
            at_first=False,
        ),
        Browser("show", inputs=stores(shown=ids.SHOWN, facts=shell.drawn(ids.FACTS), layers=shell.drawn(ids.LAYERS))),
    ),
    sends={
        ids.HEAD: (0, 1),
        ids.ETA: 0.5,
        ids.CHOSEN: {
            **{id: "" for id in CONTROLS.values()},
            **dict.fromkeys((ids.WIDTH, ids.DEPTH, ids.SEED), 1),
            **dict.fromkeys((ids.ETA, ids.X1, ids.X2), 0.5),
            ids.HEAD: (0, 1),
        },
    },
    file=__file__,
)
