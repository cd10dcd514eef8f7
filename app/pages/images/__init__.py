"""Images: what every head of a model looks at, what patches say for a class, and the same without some heads."""

from __future__ import annotations

from app.pages.images.address import ADDRESS
from app.pages.images.browser import BROWSER, WRITES
from app.pages.images.callbacks import register
from app.pages.images.layout import layout
from app.pages.images.python import python
from app.pages.images.service_consistency import Images
from app.shell.page import Page

PAGE = Page(
    title="Images",
    address=ADDRESS,
    service=Images,
    layout=layout,
    register=register,
    python=python,
    writes=WRITES,
    browser=BROWSER,
    file=__file__,
)
