"""Subspace denoising: tokens on noisy subspaces, layer by layer of MSSA, beside what the theorem says."""

from __future__ import annotations

from app.pages.subspaces.address import ADDRESS
from app.pages.subspaces.browser import BROWSER, WRITES
from app.pages.subspaces.callbacks import python, register
from app.pages.subspaces.layout import layout
from app.pages.subspaces.service import Subspaces
from app.shell.page import Page

PAGE = Page(
    title="Subspaces",
    address=ADDRESS,
    service=Subspaces,
    layout=layout,
    register=register,
    python=python,
    writes=WRITES,
    browser=BROWSER,
    file=__file__,
)
