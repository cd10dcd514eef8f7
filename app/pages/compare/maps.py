"""Maps of all heads of one pane, by a route of their own: once a run, in the widget's packed arrays (aotlens/widget).

    GET /compare/maps?left=…&left-off=…&text=…&how=…&corpus=…&view=…

The query is that of the page's address, of which the left pane counts: the right one is asked for as a left one. What
cannot be shown, the answer says as JSON, the notice of a panel.
"""

from __future__ import annotations

from flask import Response, request

from app.pages.compare.address import ADDRESS
from app.pages.compare.service import Compare
from app.shell.app import App
from app.shell.maps import answered


def register(app: App, service: Compare) -> None:
    """Register the route."""

    @app.server.get("/compare/maps")
    def compare_maps() -> Response:
        state = ADDRESS.parse(request.query_string.decode())
        return answered(lambda: service.packed(state), "packing maps of a pane")
