"""The parts of a section of a report; the template has a piece of HTML for each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from aotlens.plots import Theme
from aotlens.widget import HeadMaps

if TYPE_CHECKING:
    import plotly.graph_objects as go

#: A table with more rows is folded.
MOST_ROWS = 24


@dataclass(frozen=True, kw_only=True)
class Text:
    """A paragraph; `note` for what the numbers leave out."""

    kind: ClassVar[str] = "text"
    text: str
    note: bool = False


@dataclass(frozen=True, kw_only=True)
class Markdown:
    """Markdown that somebody wrote: headings, tables and code. Links, pictures and HTML in it stay text."""

    kind: ClassVar[str] = "markdown"
    text: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells below a head; a number that is text already is set to the right."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def folded(self) -> bool:
        return len(self.rows) > MOST_ROWS

    def is_number(self, cell: str) -> bool:
        return cell[:1] in "+-−.0123456789" and any(character.isdigit() for character in cell[:3])


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure of plotly, made once for each theme."""

    kind: ClassVar[str] = "figure"
    caption: str
    make: Callable[[Theme], go.Figure]
    height: int = 420


@dataclass(frozen=True, kw_only=True)
class Maps:
    """The maps of all heads on one prompt."""

    kind: ClassVar[str] = "maps"
    maps: HeadMaps


Part: TypeAlias = Text | Markdown | Table | Figure | Maps


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and what stands below it."""

    name: str
    """The name by which it is asked for, and linked within the report."""
    title: str
    parts: tuple[Part, ...]
