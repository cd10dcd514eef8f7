"""In-context denoising: attention as one step down the energy of its context, and layers trained to denoise."""

from __future__ import annotations

from app.pages.denoising.address import ADDRESS
from app.pages.denoising.callbacks import python, register
from app.pages.denoising.ids import BROWSER, WRITES, ids
from app.pages.denoising.layout import layout
from app.pages.denoising.service import Denoising
from app.shell.page import Page

PAGE = Page(
    title="Denoising",
    address=ADDRESS,
    service=Denoising,
    layout=layout,
    register=register,
    python=python,
    writes=WRITES,
    browser=BROWSER,
    sends={ids.QUERY: (0.5, 0.5)},
    file=__file__,
)
