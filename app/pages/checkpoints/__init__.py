"""Checkpoints: what there is, how well it does, its card, training curve and parameters."""

from __future__ import annotations

from app.pages.checkpoints.address import ADDRESS
from app.pages.checkpoints.callbacks import register
from app.pages.checkpoints.ids import ids
from app.pages.checkpoints.layout import layout
from app.pages.checkpoints.python import python
from app.pages.checkpoints.service import Checkpoints
from app.shell import ids as shell
from app.shell.browser import Browser
from app.shell.page import Page
from app.shell.props import stores, values

PAGE = Page(
    title="Checkpoints",
    address=ADDRESS,
    service=Checkpoints,
    layout=layout,
    register=register,
    python=python,
    writes=stores(checkpoint=ids.CHOSEN) | values(tab=ids.TABS),
    browser=(
        Browser(
            "list",
            inputs=stores(chosen=ids.CHOSEN, rows=shell.drawn(ids.TABLE), tensors=shell.drawn(ids.TENSORS)),
        ),
    ),
    file=__file__,
)
