"""In-context regression: errors by the number of examples, what the layers know of the answer, what heads look at."""

from __future__ import annotations

from app.pages.regression.address import ADDRESS
from app.pages.regression.callbacks import python, register
from app.pages.regression.ids import BROWSER, WRITES
from app.pages.regression.layout import layout
from app.pages.regression.service import Regressions
from app.shell.page import Page

PAGE = Page(
    title="Regression",
    address=ADDRESS,
    service=Regressions,
    layout=layout,
    register=register,
    python=python,
    writes=WRITES,
    browser=BROWSER,
    file=__file__,
)
