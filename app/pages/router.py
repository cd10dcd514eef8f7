"""Address -> page.

Not Dash's own pages: their registry is global to the process, so two apps in one process (as in tests) would mix, and
they take a query apart before a page sees it.
"""

from __future__ import annotations

from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, html

from app import ids
from app.components.notices import defect, problem
from app.pages import PAGES
from app.pages.guard import log
from app.services import Services
from app.services.errors import RequestError


def page(services: Services, pathname: str | None, search: str | None) -> Any:
    """The content for an address; `/` is the first page."""
    path = (pathname or "/").rstrip("/") or PAGES[0].path
    for candidate in PAGES:
        if candidate.path == path:
            return candidate.layout(services, search)
    return html.Div(
        [html.H1("There is no such page"), html.P(["Nothing is at ", html.Code(path), ". See the pages above."])],
        className="missing",
    )


def register(app: Dash, services: Services) -> None:
    """The router's callback, and the navigation's mark of the current page."""

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
