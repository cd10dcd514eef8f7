"""Address -> page.

Not Dash's own pages: their registry is global to the process, so two apps in one process (as in tests) would mix, and
they take a query apart before a page sees it.
"""

from __future__ import annotations

from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, html
from flask import Response, request

from app import ids
from app.components.notices import defect, problem
from app.pages import PAGES
from app.pages.guard import log
from app.pages.page import Page
from app.services import Services
from app.services.errors import RequestError

#: The endpoint by which Dash answers every GET that is nothing of its own.
_ANY_PATH = "/<path:path>"


def find(pathname: str | None) -> Page | None:
    """The page at a path; `/` is the first page."""
    path = (pathname or "/").rstrip("/") or PAGES[0].path
    return next((page for page in PAGES if page.path == path), None)


def page(services: Services, pathname: str | None, search: str | None) -> Any:
    """The content for an address."""
    found = find(pathname)
    if found is not None:
        return found.layout(services, search)
    return html.Div(
        [
            html.H1("There is no such page"),
            html.P(["Nothing is at ", html.Code(pathname), ". See the pages above."]),
        ],
        className="missing",
    )


def register(app: Dash, services: Services) -> None:
    """The router's callback, the status of an unknown address, and the navigation's mark of the current page."""

    @app.server.after_request
    def mark_missing(response: Response) -> Response:
        # The browser gets the app all the same, and in it the page that says so.
        if request.endpoint == _ANY_PATH and response.status_code == 200 and find(request.path) is None:
            response.status_code = 404
        return response

    @app.callback(Output(ids.PAGE, "children"), Input(ids.LOCATION, "pathname"), Input(ids.LOCATION, "search"))
    def show_page(pathname: str | None, search: str | None) -> Any:
        try:
            return page(services, pathname, search)
        except RequestError as error:
            return problem(str(error))
        except Exception as error:
            log.exception("the page %s failed", pathname)
            return defect(error)

    app.clientside_callback(
        ClientsideFunction("shell", "markPage"), Input(ids.LOCATION, "pathname"), Input(ids.PAGE, "children")
    )
    app.clientside_callback(
        ClientsideFunction("shell", "chooseTheme"),
        Output(ids.THEME, "data"),
        Output(ids.PROVIDER, "forceColorScheme"),
        Input(ids.THEME_CHOICE, "value"),
    )
