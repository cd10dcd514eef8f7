"""Heads: type text, see what every head of a model does with it, and what the model does without some of them."""

from __future__ import annotations

from app.pages.heads.address import ADDRESS
from app.pages.heads.browser import BROWSER, WRITES
from app.pages.heads.callbacks import register
from app.pages.heads.first import first
from app.pages.heads.ids import ids
from app.pages.heads.layout import layout
from app.pages.heads.python import python
from app.pages.heads.service import Continuations
from app.pages.heads.why import SENDS as WHY_SENDS
from app.shell.page import Page

PAGE = Page(
    title="Heads",
    address=ADDRESS,
    layout=layout,
    first=first,
    register=register,
    python=python,
    service=Continuations,
    writes=WRITES,
    browser=BROWSER,
    sends={
        ids.HEAD: (0, 1),
        ids.OFF: [(0, 1)],
        ids.POSITION: 0,
        ids.DIRECTION_OF: frozenset(("to", "from")),
        **WHY_SENDS,
    },
    file=__file__,
)
