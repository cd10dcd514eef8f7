"""Start: what aotlens is, one finished finding, and the ways in."""

from __future__ import annotations

from dataclasses import dataclass

from app.core.address import Address
from app.pages.start.finding import Findings
from app.pages.start.layout import layout
from app.shell.page import Page


@dataclass(frozen=True)
class StartState:
    """The start page has no settings: its address is `/`."""


PAGE = Page(
    title="Start",
    address=Address("start", StartState),
    service=Findings,
    layout=layout,
    in_navigation=False,
    file=__file__,
)
