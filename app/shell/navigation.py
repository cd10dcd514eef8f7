"""Address -> page.

Not Dash's own pages: their registry is global to the process, so two apps in one process (as in tests) would mix, and
they take a query apart before a page sees it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dash import Input, Output, html
from flask import Response, request

from app.core.address import parse_query
from app.shell import ids
from app.shell.app import App
from app.shell.browser import Browser
from app.shell.callbacks import spoken
from app.shell.frame import first_header
from app.shell.notices import taken_instead
from app.shell.page import Page

#: The endpoint by which Dash answers every GET that is nothing of its own.
_ANY_PATH = "/<path:path>"


def find(pages: Sequence[Page], pathname: str | None, search: str | None = None) -> Page | None:
    """Return the page at a path; `/` is the start page, or with a query the first of the menu."""
    path = (pathname or "/").rstrip("/")
    if not path:
        start = None if (search or "").strip("?") else next((page for page in pages if not page.in_navigation), None)
        return start or pages[0]
    return next((page for page in pages if page.path == path), None)


def content(app: App, pathname: str | None, search: str | None) -> Any:
    """Return what is at an address, below what was taken instead of values that cannot be."""
    page = find(app.pages, pathname, search)
    if page is None:
        return html.Div(
            [
                html.H1("There is no such page"),
                html.P(["Nothing is at ", html.Code(pathname), ". See the pages above."]),
            ],
            className="missing",
        )
    state, sentences = page.address.read(search, app.core)
    if "along" in parse_query(search):
        sentences = []  # a link of the menu carried the selection along, whatever this page can show of it
    laid_out = page.content(app.core, app.services[page.name], state)
    app.asked.laid_out(laid_out)
    return [taken_instead(sentences), *laid_out] if sentences else laid_out


def first_picture(app: App, groups: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """Return what the page at the address asked for shows before Dash has started; nothing where it has nothing."""
    search = request.query_string.decode(errors="replace")
    page = find(app.pages, request.path, search)
    if page is None or page.first is None:
        return ""
    draw, service = page.first, app.services[page.name]
    drawn, _ = spoken(lambda: draw(app.core, service, page.address.read(search, app.core)[0]), "a first picture")
    if drawn is None:
        return ""
    header = first_header(groups, page.path)
    return f'<div class="first" data-page="{page.name}">{header}<div class="page">{drawn}</div></div>'


def register(app: App) -> None:
    """Register the callback that shows a page, the status of an unknown address, the mark of the current page, the
    theme."""

    @app.server.after_request
    def mark_missing(response: Response) -> Response:
        # The browser gets the app all the same, and in it the page that says so.
        if request.endpoint == _ANY_PATH and response.status_code == 200 and find(app.pages, request.path) is None:
            response.status_code = 404
        return response

    @app.callback(Output(ids.PAGE, "children"), Input(ids.LOCATION, "pathname"), Input(ids.LOCATION, "search"))
    def show_page(pathname: str | None, search: str | None) -> Any:
        laid_out, problem = spoken(lambda: content(app, pathname, search), f"the page {pathname}")
        return laid_out if problem is None else problem

    app.wiring.register(
        app,
        "shell",
        Browser(
            "markPage",
            inputs={"pathname": Input(ids.LOCATION, "pathname"), "content": Input(ids.PAGE, "children")},
            listens=False,  # the content is something else whenever anything in it is
        ),
    )
    app.wiring.register(
        app,
        "shell",
        Browser(
            "chooseTheme",
            inputs={"chosen": Input(ids.THEME_CHOICE, "value")},
            outputs={"theme": Output(ids.THEME, "data"), "scheme": Output(ids.PROVIDER, "forceColorScheme")},
        ),
    )
