"""A Dash app that knows its core, its pages' services, and what the browser is told of both."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dash import Dash
from dash.exceptions import DependencyException
from flask import Flask

from app.core import Core
from app.core.ahead import Ahead
from app.shell.browser import Wiring
from app.shell.page import Page
from app.shell.requests import RequestForms

#: Dash's page, with a language, and the theme known before anything is drawn. Our scripts run first; Dash's wait in a
#: template until static/start.js starts them, and are on their way meanwhile.
_INDEX = """<!DOCTYPE html>
<html lang="en">
    <head>
        {{%metas%}}
        <title>{{%title%}}</title>
        {{%favicon%}}
        {early}
        {{%css%}}
        {styles}
        {{%preloads%}}
    </head>
    <body>
        {{%app_entry%}}
        <footer>{{%config%}}<template class="dash">{{%scripts%}}{{%renderer%}}</template>{scripts}</footer>
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
            # DASH_MCP_ENABLED, 0 too, would open /_mcp: tools over layouts, past what refuses requests here.
            enable_mcp=False,
            # Pages come and go; `checking.py` has compared every callback with all layouts, which Dash would do in the
            # browser, with all layouts in every page's HTML.
            suppress_callback_exceptions=True,
        )
        self.server.register_error_handler(DependencyException, lambda _: ("There is no such package.", 404))
        self.asked = RequestForms()
        """The forms of what browsers may ask of the callbacks."""
        self.core = core
        self.ahead = Ahead(core.settings.quiet_seconds)
        """The computation of what is likely to be asked for next."""
        self.pages = tuple(pages)
        self.services: dict[str, Any] = {page.name: page.service(core) for page in pages}
        self.wiring = Wiring(pages)
        self.followers: dict[str, list[str]] = {}
        """Panels by the store that they follow, for `sharing.finish`."""
        self.saving: dict[str, list[tuple[Mapping[str, Callable[..., Any]], Any]]] = {}
        """The files that the server saves, with what it is told for them, by page, for `sharing.finish`."""

    def set_index(self, *, early: str, styles: str, scripts: str, first: Callable[[], str] = str) -> None:
        """Set the HTML of every page; `first` gives what the page at the address that is asked for draws by itself."""
        self.index_string = _INDEX.format(early=early, styles=styles, scripts=scripts)
        self._first = first

    def interpolate_index(self, *, scripts: str = "", app_entry: str = "", **parts: str) -> str:
        """Write Dash's own, with the first picture before what Dash draws."""
        tags: list[str] = re.findall(r'<script src="[^"]+"></script>', scripts)
        preload = '<link rel="preload" as="script" fetchpriority="low" href="{}">'
        html = super().interpolate_index(scripts=scripts, app_entry="{%app_entry%}", **parts)
        late = {
            "preloads": "\n        ".join(preload.format(_source(tag)) for tag in tags),
            "app_entry": self._first() + app_entry,  # last, since it holds what somebody typed
        }
        for name, content in late.items():
            html = html.replace(f"{{%{name}%}}", content)
        return html


def _source(tag: str) -> str:
    return tag.partition('src="')[2].partition('"')[0]
