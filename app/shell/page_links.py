"""Links from a declared page to other pages, and buttons that set its fields (`app.shell.arrange`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dash import html


@dataclass(frozen=True)
class PageLink:
    """A link to another page."""

    words: str
    page: str
    fields: tuple[str, ...]
    """Fields of this page that it takes along."""
    always: tuple[tuple[str, str], ...]
    """Fields with one value always."""
    when: Callable[[Any], bool] | None = None
    """Whether the link is of use for these parameters; None for always."""
    answers: tuple[tuple[str, Callable[[Any], Any]], ...] = ()
    """Fields that the server answers: `value(params)`."""


def link(
    words: str,
    page: str,
    *fields: str,
    when: Callable[[Any], bool] | None = None,
    answers: Mapping[str, Callable[[Any], Any]] | None = None,
    **always: str,
) -> PageLink:
    """Return a link to another page, with these fields of this page, fields that the server `answers` for the page's
    parameters, and fields with one value always."""
    return PageLink(words, page, fields, tuple(always.items()), when, tuple((answers or {}).items()))


def leading(words: str, href: str, *, id: str = "", hidden: bool = False) -> html.A:
    """Return the element of a link to another page."""
    named = {"id": id} if id else {}
    return html.A(
        words, href=href, className="page-link hidden" if hidden else "page-link", **named, **{"data-in-app": ""}
    )


@dataclass(frozen=True)
class Preset:
    """A button that sets fields."""

    words: str
    sets: Mapping[str, Any]
    """Values by field; "=field" is the value of another field, also within a list."""
    tip: str = ""
    menu: str = ""
    """The menu that it is in; by default it is a button by itself."""
    needs: tuple[str, ...] = ()
    """Checkpoints without which it is of no use."""
