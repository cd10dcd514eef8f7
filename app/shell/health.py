"""`/healthz`: whether the app can be used, for what watches over it and for pages that wait for it."""

from __future__ import annotations

from flask import Flask, Response

from aotlens.checkpoints import CheckpointError
from app.core import Core

HEALTH = "/healthz"


def tell_health(server: Flask, core: Core) -> None:
    """Answer 200 and `ready`, or 503 and why not. Where a token is asked for, only who has it is told why."""

    @server.get(HEALTH)
    def health() -> Response:
        why = _missing(core)
        if why is None:
            return Response("ready\n", mimetype="text/plain")
        told = "not ready\n" if core.settings.token is not None else f"not ready: {why}\n"
        return Response(told, 503, mimetype="text/plain")


def _missing(core: Core) -> str | None:
    """Say what the app cannot do without, and lacks."""
    try:
        usable = any(info.problem is None for info in core.catalog.list())
    except (CheckpointError, OSError) as error:
        return str(error)
    return None if usable else "no checkpoint can be opened"
