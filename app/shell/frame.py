"""The frame of every page: name, navigation, theme, and a place for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from app.shell import ids, python
from app.shell.panel import QUIET

_THEME: dict[str, Any] = {
    "primaryColor": "blue",
    "primaryShade": 8,  # white text on the lighter ones has too little contrast
    "fontFamily": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif",
    "fontFamilyMonospace": "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace",
    "defaultRadius": "sm",
}


def frame(groups: Mapping[str, Sequence[tuple[str, str]]]) -> dmc.MantineProvider:
    """Frame pages; `groups` are pages, (title, address), by what they are about, in the order of the navigation."""
    return dmc.MantineProvider(
        [
            dcc.Location(id=ids.LOCATION, refresh=False),
            dcc.Store(id=ids.THEME),
            html.A("Skip to the content", href="#page", className="skip"),
            _connection(),
            _signed_out(),
            html.Header(
                [
                    dcc.Link([html.Span(className="logo"), "aotlens"], href="/", className="brand", title="aotlens"),
                    html.Nav(
                        [_group(name, pages) for name, pages in groups.items()],
                        id=ids.NAVIGATION,
                        className="navigation",
                        **{"aria-label": "Pages"},
                    ),
                    html.Button(
                        ["Find ", dmc.Kbd("/", size="xs")],
                        className="plain-button find-open",
                        title="Heads by what they do, pages and checkpoints: / or Ctrl K",
                    ),
                    html.Button("Copy link", className="plain-button copy-link", title="The address of this view"),
                    dmc.SegmentedControl(
                        id=ids.THEME_CHOICE,
                        data=[
                            {"value": "light", "label": "Light"},
                            {"value": "dark", "label": "Dark"},
                            {"value": "system", "label": "System"},
                        ],
                        value="system",
                        size="xs",
                        persistence=True,
                        persistence_type="local",
                        **{"aria-label": "Colour theme"},
                    ),
                ],
                className="header",
            ),
            html.Main(id=ids.PAGE, className="page", tabIndex=-1, **QUIET),
            python.dialog(),
            html.Noscript("aotlens needs JavaScript."),
        ],
        id=ids.PROVIDER,
        theme=_THEME,
        defaultColorScheme="auto",
    )


def first_header(groups: Mapping[str, Sequence[tuple[str, str]]], path: str) -> str:
    """Return the name and the groups of pages as HTML, with that of the page at `path` marked, for what is shown before
    Dash has started."""
    names = "".join(
        f'<span class="{"nav-alone" if len(pages) == 1 else "nav-name"}"'
        f"{' data-page' if path in dict(pages).values() else ''}>{escape(name)}</span>"
        for name, pages in groups.items()
    )
    brand = '<span class="brand"><span class="logo"></span>aotlens</span>'
    return f'<div class="header">{brand}<div class="navigation">{names}</div></div>'


def _group(name: str, pages: Sequence[tuple[str, str]]) -> Any:
    """A group of pages, which opens under the pointer and the keyboard; of one page a link to it."""
    links = [html.A(title, href=address, className="nav-link", **{"data-in-app": ""}) for title, address in pages]
    if len(links) == 1:
        return links[0]
    # markPage (static/shell.js) marks the name whose page is shown.
    opens = html.Button(html.Span(name), type="button", className="nav-name")
    return html.Div([opens, html.Div(links, className="nav-menu")], className="nav-group")


def _connection() -> html.Div:
    """Lay out what static/connection.js shows while the server does not answer."""
    return html.Div(
        [
            html.Span(
                [
                    html.Strong("aotlens does not answer. "),
                    "Its server has stopped or can't be reached. Once it runs again, this page goes on where it was.",
                ]
            ),
            html.Button("Try again", className="plain-button"),
        ],
        id=ids.CONNECTION,
        className="connection",
        hidden=True,
        role="alert",
    )


def _signed_out() -> html.Div:
    """Lay out what static/connection.js shows where the server asks for a token and knows this browser no longer."""
    return html.Div(
        [
            html.Span([html.Strong("You are signed out. "), "The app has been started again since you signed in."]),
            html.A("Sign in", href="/sign-in", className="plain-button"),
        ],
        id=ids.SIGNED_OUT,
        className="connection",
        hidden=True,
        role="alert",
    )
