"""Circuits: what a head looks for and what it writes, read from the weights.

callbacks.py            which circuit, and its maps
line_callbacks.py       tables of entries, of a row and of a column
structure_callbacks.py  spectra, and the heads around this one
file_callbacks.py       files
service.py              circuits, their entries and spectra, each computed once
service_sides.py        what the sides of a circuit may be
service_structure.py    singular pairs, composition and copying as records
figures.py              maps of entries, of blocks and of one block
"""

from __future__ import annotations

from app.pages.circuits import callbacks, file_callbacks, line_callbacks, structure_callbacks
from app.pages.circuits.address import ADDRESS
from app.pages.circuits.browser import BROWSER
from app.pages.circuits.ids import ids
from app.pages.circuits.layout import layout
from app.pages.circuits.python import python
from app.pages.circuits.service import Circuits
from app.shell.page import Page, register_all
from app.shell.props import inside, values

PAGE = Page(
    title="Circuits",
    address=ADDRESS,
    service=Circuits,
    layout=layout,
    register=register_all(callbacks, line_callbacks, structure_callbacks, file_callbacks),
    python=python,
    writes={
        **inside(ids.SHOWN, "checkpoint", "kind", "biases", "distance"),
        "head": (ids.SHOWN, "data.layer", "data.head"),
        "left": (ids.SHOWN, "data.named.left"),
        "right": (ids.SHOWN, "data.named.right"),
        **values(rows=ids.MAP_ROWS, columns=ids.MAP_COLUMNS, row=ids.ROW_CHOICE, column=ids.COLUMN_CHOICE),
        **values(statistic=ids.OVERVIEW_STATISTIC, z=ids.COMPOSITION_Z, view=ids.VIEWS, beside=ids.BESIDES),
        "block": (ids.BLOCK_AT, "data"),
        **inside(ids.ASKED, "text"),
    },
    browser=BROWSER,
    sends={ids.HEAD: (0, 1), ids.BLOCK_AT: (0, 0), ids.THROUGH: {"layer": 0, "head": 0, "kind": "qk"}},
    file=__file__,
)
