"""Answers of the routes that give maps of heads, which static/maps.js asks."""

from __future__ import annotations

import json
from collections.abc import Callable

from flask import Response
from plotly.utils import PlotlyJSONEncoder

from app.core.compression import MAPS
from app.shell.callbacks import spoken


def answered(make: Callable[[], bytes], name: str) -> Response:
    """Return what `make` packs; where that cannot be, what the notice of a panel says instead, as JSON. `name` is for
    the log."""
    content, notice = spoken(make, name)
    if content is None:
        return Response(json.dumps(notice, cls=PlotlyJSONEncoder), mimetype="application/json")
    return Response(content, mimetype=MAPS)
