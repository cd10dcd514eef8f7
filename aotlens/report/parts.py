"""The parts of a section of a report, for each of which the template has a piece of HTML; and those of any view."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from aotlens.conventions import head_name
from aotlens.plots import Theme
from aotlens.views import family
from aotlens.views.view import cells
from aotlens.widget import HeadMaps

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from aotlens.report.subject import Subject
    from aotlens.views import Family, Values, View

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
    """Markdown of a user: headings, tables and code. Links, pictures and HTML in it stay text."""

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
    """A heading and the parts below it."""

    name: str
    """The name by which it is asked for, and linked within the report."""
    title: str
    parts: tuple[Part, ...]


#: Rows of a table, at most: a file is at most 5 MB.
MOST_LISTED = 500


def parse_view(text: str) -> tuple[Family, View, dict[str, Any]]:
    """Parse `FAMILY.VIEW NAME=VALUE …`, quoted as in a shell: `lens.stream text="the cat" layer=1`.

    Raises `ValueError` for an unknown view or parameter, and for a view of a family that takes no model.
    """
    try:
        name, *written = shlex.split(text)
        given = dict(part.split("=", 1) for part in written)
    except ValueError:
        raise ValueError(f"{text!r}: expected FAMILY.VIEW NAME=VALUE …, as circuits.map head=1.0.") from None
    of, _, name = name.partition(".")
    view_family = family(of)
    if view_family.reads is None:
        raise ValueError(f"{text!r}: {of} takes no model; `aotlens view {of} --html FILE` writes its figure.")
    if unknown := sorted(set(given) - set(view_family.parameters)):
        known = ", ".join(view_family.parameters)
        raise ValueError(f"{of}: there is no parameter {', '.join(unknown)}; there are {known}.")
    return view_family, view_family.view(name) if name else view_family.views[0], given


def parts_of_view(subject: Subject, of: Family, view: View, given: dict[str, Any]) -> list[Part]:
    """Return the view's parts of the subject; its text and the first of its named heads where the view takes one."""
    usual = {"text": subject.text, "head": head_name(subject.named_heads[0]) if subject.named_heads else None}
    own = {name: value for name, value in usual.items() if value is not None and name in of.parameters}
    values, workshop = of.of_model(subject.model, subject.info, **{**own, **given})
    workshop.progress = subject.progress
    python = Markdown(text=f"```python\n{view.python(values)}```")
    result = view.result(values, workshop)
    columns, *rows = cells(frame := view.frame(result), MOST_LISTED)
    left = f", the first {MOST_LISTED} of {len(frame):,} rows" if len(frame) > MOST_LISTED else ""
    table = Table(caption=f"{view.title}{left}", columns=columns, rows=rows)
    return [*view_parts(view, values, result), table, python]


def view_parts(view: View, values: Values, result: Any) -> list[Part]:
    """Return a view's explanation, and its figure below its caption, or the caption alone."""
    caption = view.caption(values, result)
    more = [view.formula and f"{view.formula}.", view.source and f"From: {view.source}."]
    parts: list[Part] = [Text(text=view.read), *(Text(text=each, note=True) for each in more if each)]
    if not view.pictured:
        return [*parts, Text(text=caption)]
    height = view.figure(values, result).layout.height or 420
    return [*parts, Figure(caption=caption, make=lambda theme: view.figure(values, result, theme), height=height)]
