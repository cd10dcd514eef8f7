"""The description of a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dash import dcc

from app.core import Core
from app.core.address import Address
from app.shell.ids import file_of

if TYPE_CHECKING:
    from app.shell.browser import Browser, Link, Source


#: `write(core, service, state, panel)`: the lines, or None where there is nothing that Python could repeat.
Write = Callable[[Core, Any, Any, str], Sequence[str] | None]


@dataclass(frozen=True)
class Python:
    """The writer of a page's lines, and the panels that it answers for: those with the entry (checking.py)."""

    panels: tuple[str, ...]
    write: Write


def python_of(*panels: str) -> Callable[[Write], Python]:
    """Make `Page.python` of a function that answers for these panels."""
    return lambda write: Python(panels, write)


@dataclass(frozen=True, kw_only=True)
class Page:
    """A view: its address, what it looks like there, its callbacks, script and style."""

    title: str
    """The title in the navigation."""
    address: Address[Any]
    """Its fields, declared once; the page's name is the address's."""
    layout: Callable[[Any, Any, Any], Any]
    """`layout(core, service, state)` for a state of the address."""
    first: Callable[[Any, Any, Any], str] | None = None
    """`first(core, service, state)` is the HTML of what the page shows before Dash has started, without waiting for a
    model; its script has a function of that name, which draws in it. None: Dash starts at once."""
    register: Callable[[Any, Any, Any], None] = lambda app, core, service: None
    """`register(app, core, service)` adds the server's callbacks."""
    python: Python | None = None
    """The writer of the lines for panels' "Python for this view" (shell/python.py)."""
    service: Callable[[Any], Any] = lambda core: None
    """`service(core)` makes what computes for the page; called once for each app."""
    writes: Mapping[str, Source] = field(default_factory=dict)
    """The component and property from which the browser writes each field of the address."""
    browser: Sequence[Browser | Link] = ()
    """The functions of `script`, and links to other pages, that the browser runs alone."""
    sends: Mapping[str, Any] = field(default_factory=dict)
    """An example of what the browser puts into each store that the server neither fills at first nor answers with
    (`app.shell.requests`): a tuple is a list of that length."""
    declared: Any = None
    """The fields and panels of a page that is made of views (`app.shell.view_declared.Declared`); None for another."""
    in_navigation: bool = True
    """Whether the menu names it."""
    file: str | None = None
    """The page's `__init__.py`: beside it are its script, NAME.js, and its style, NAME.css, where it has them."""

    def content(self, core: Core, service: Any, state: Any) -> list[Any]:
        """Return all that the page is for a state: what it lays out, and where a file to save goes."""
        return [dcc.Download(id=file_of(self.name)), self.layout(core, service, state)]

    @property
    def name(self) -> str:
        return self.address.name

    @property
    def path(self) -> str:
        return self.address.path

    @property
    def script(self) -> Path | None:
        return self._beside("js")

    @property
    def style(self) -> Path | None:
        return self._beside("css")

    def _beside(self, kind: str) -> Path | None:
        path = None if self.file is None else Path(self.file).with_name(f"{self.name}.{kind}")
        return path if path and path.is_file() else None
