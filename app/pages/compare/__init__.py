"""Compare: two models, or one with heads switched off, on one text or on two, side by side."""

from __future__ import annotations

from app.pages.compare import callbacks, pair_callbacks
from app.pages.compare.address import ADDRESS
from app.pages.compare.browser import BROWSER, WRITES
from app.pages.compare.layout import layout
from app.pages.compare.python import python
from app.pages.compare.service import Compare
from app.shell.page import Page, register_all

PAGE = Page(
    title="Compare",
    address=ADDRESS,
    layout=layout,
    register=register_all(callbacks, pair_callbacks),
    python=python,
    service=Compare,
    writes=WRITES,
    browser=BROWSER,
    file=__file__,
)
