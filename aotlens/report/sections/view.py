"""Any view of `aotlens.views` that takes one model: what it says, figure, table, and the Python that gives them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from aotlens.conventions import head_name
from aotlens.report.parts import Figure, Markdown, Part, Table, Text
from aotlens.report.subject import Subject
from aotlens.views import family
from aotlens.views.view import cells

if TYPE_CHECKING:
    from aotlens.views import Family, Values, View

#: Rows of a table, at most: a file is at most 5 MB.
MOST_ROWS = 500


def asked(text: str) -> tuple[Family, View, dict[str, Any]]:
    """Parse `FAMILY.VIEW NAME=VALUE …`, quoted as in a shell: `lens.stream text="the cat" layer=1`.

    Raises `ValueError` for a view or parameter that there is not, and for a view of no model.
    """
    try:
        name, *written = shlex.split(text)
        given = dict(part.split("=", 1) for part in written)
    except ValueError:
        raise ValueError(f"{text!r}: expected FAMILY.VIEW NAME=VALUE …, as circuits.map head=1.0.") from None
    of, _, name = name.partition(".")
    view_family = family(of)
    if view_family.reads is None:
        raise ValueError(f"{text!r}: {of} is of no model; `aotlens view {of} --html FILE` writes its figure.")
    if unknown := sorted(set(given) - set(view_family.parameters)):
        known = ", ".join(view_family.parameters)
        raise ValueError(f"{of}: there is no parameter {', '.join(unknown)}; there are {known}.")
    return view_family, view_family.view(name) if name else view_family.views[0], given


def asked_parts(subject: Subject, of: Family, view: View, given: dict[str, Any]) -> list[Part]:
    """Return the view's parts of the subject; its text and the first of its named heads where the view takes one."""
    usual = {"text": subject.text, "head": head_name(subject.named_heads[0]) if subject.named_heads else None}
    own = {name: value for name, value in usual.items() if value is not None and name in of.parameters}
    values, workshop = of.of_model(subject.model, subject.info, **{**own, **given})
    workshop.progress = subject.progress
    python = Markdown(text=f"```python\n{view.python(values)}```")
    result = view.result(values, workshop)
    columns, *rows = cells(frame := view.frame(result), MOST_ROWS)
    left = f", the first {MOST_ROWS} of {len(frame):,} rows" if len(frame) > MOST_ROWS else ""
    table = Table(caption=f"{view.title}{left}", columns=columns, rows=rows)
    return [*view_parts(view, values, result), table, python]


def view_parts(view: View, values: Values, result: Any) -> list[Part]:
    """Return a view's explanation, and its figure below its caption, or the caption alone."""
    about, caption = view.about, view.caption(values, result)
    more = [about.formula and f"{about.formula}.", about.source and f"From: {about.source}."]
    parts: list[Part] = [Text(text=about.read), *(Text(text=each, note=True) for each in more if each)]
    if not view.pictured:
        return [*parts, Text(text=caption)]
    height = view.figure(values, result).layout.height or 420
    return [*parts, Figure(caption=caption, make=lambda theme: view.figure(values, result, theme), height=height)]
