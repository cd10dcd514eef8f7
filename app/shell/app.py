"""A Dash app that knows its core, its pages' services, and what the browser is told of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import Dash
from dash.exceptions import DependencyException
from flask import Flask

from app.core import Core
from app.shell.browser import Wiring
from app.shell.page import Page
from app.shell.requests import RequestForms

#: Dash's page, with a language, and the theme known before anything is drawn. Our scripts come before Dash's renderer.
_INDEX = """<!DOCTYPE html>
<html lang="en">
    <head>
        {{%metas%}}
        <title>{{%title%}}</title>
        {{%favicon%}}
        {early}
        {{%css%}}
        {styles}
    </head>
    <body>
        {{%app_entry%}}
        <footer>{{%config%}}{scripts}{{%scripts%}}{{%renderer%}}</footer>
    </body>
</html>
"""


class App(Dash):
    """`services` are the pages' own, by the pages' names."""

    def __init__(self, core: Core, pages: Sequence[Page]) -> None:
        super().__init__(
            __name__,
            # Without Flask's own folder of static files, and without Dash's below.
            server=Flask(__name__, static_folder=None),
            title="aotlens",
            update_title=None,
            # There is no such folder: scripts and styles are served by list (static.py), and no other file.
            assets_folder="no-assets",
            serve_locally=True,
            add_log_handler=False,
            hooks={"callback_resolved": "(callback, result) => aotlens.resolved(callback, result)"},
            use_pages=False,
            # Pages come and go; `checking.py` has compared every callback with all layouts, which Dash would do in the
            # browser, with all layouts in every page's HTML.
            suppress_callback_exceptions=True,
        )
        self.server.register_error_handler(DependencyException, lambda _: ("There is no such package.", 404))
        self.asked = RequestForms()
        """What browsers may ask of the callbacks."""
        self.core = core
        self.pages = tuple(pages)
        self.services: dict[str, Any] = {page.name: page.service(core) for page in pages}
        self.wiring = Wiring(pages)

    def set_index(self, *, early: str, styles: str, scripts: str) -> None:
        """Sets the HTML of every page."""
        self.index_string = _INDEX.format(early=early, styles=styles, scripts=scripts)
