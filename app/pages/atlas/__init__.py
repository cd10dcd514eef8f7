"""Atlas: what every head of a checkpoint does, a row and a dossier each, and a guided path to an induction circuit."""

from __future__ import annotations

from app.pages.atlas import callbacks, dossier_callbacks, path_callbacks
from app.pages.atlas.address import ADDRESS
from app.pages.atlas.browser import BROWSER, WRITES
from app.pages.atlas.ids import ids
from app.pages.atlas.layout import layout
from app.pages.atlas.python import python
from app.pages.atlas.service import Atlases
from app.shell.page import Page, register_all

PAGE = Page(
    title="Atlas",
    address=ADDRESS,
    service=Atlases,
    layout=layout,
    register=register_all(callbacks, dossier_callbacks, path_callbacks),
    python=python,
    writes=WRITES,
    browser=BROWSER,
    sends={ids.HEAD: (0, 1)},
    file=__file__,
)
