"""Heads: type text, see what every head of a model does with it, and what the model does without some of them."""

from __future__ import annotations

from typing import Any

from app.pages.heads.address import ADDRESS
from app.pages.heads.browser import BROWSER, WRITES
from app.pages.heads.callbacks import register
from app.pages.heads.first import first
from app.pages.heads.ids import ids
from app.pages.heads.layout import layout
from app.pages.heads.python import python
from app.pages.heads.service import Heads
from app.shell.page import Page

#: Examples of what the browser puts into the page's stores (`Page.sends`).
_PROMPT = {"checkpoint": "", "text": ""}
_RUN: dict[str, Any] = {"off": [(0, 1)], "how": "zero", "corpus": None}

PAGE = Page(
    title="Heads",
    address=ADDRESS,
    layout=layout,
    first=first,
    register=register,
    python=python,
    service=Heads,
    writes=WRITES,
    browser=BROWSER,
    sends={
        ids.HEAD: (0, 1),
        ids.OFF: [(0, 1)],
        ids.POSITION: 0,
        ids.SCORED: "",
        ids.CELL: {"cell": (0, 1), "against": None},
        ids.PREDICTED: {"prompt": _PROMPT, "position": 0, **_RUN},
        ids.RUN_OF: {"prompt": _PROMPT, **_RUN},
        ids.WHY_OF: {
            "prompt": _PROMPT,
            "head": (0, 1),
            "cell": (0, 1),
            "position": 0,
            "direction": frozenset(("to", "from")),
            "against": None,
            "off": [(0, 1)],
        },
    },
    file=__file__,
)
