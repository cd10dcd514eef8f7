"""Non-linearity: a feed-forward network compiled into attention."""

from __future__ import annotations

from app.pages.nonlinearity.address import ADDRESS
from app.pages.nonlinearity.browser import BROWSER, WRITES
from app.pages.nonlinearity.callbacks import register
from app.pages.nonlinearity.ids import ids
from app.pages.nonlinearity.layout import layout
from app.pages.nonlinearity.python import python
from app.pages.nonlinearity.service import Nonlinearity
from app.shell.page import Page

PAGE = Page(
    title="Non-linearity",
    address=ADDRESS,
    service=Nonlinearity,
    layout=layout,
    register=register,
    python=python,
    writes=WRITES,
    browser=BROWSER,
    sends={ids.HEAD: (0, 1), ids.ETA: 0.5},
    file=__file__,
)
