"""Sessions: who asks, a browser, by a random name in a cookie that lasts until the browser is closed.

The name says nothing of anybody and opens nothing: it only tells whose work a Stop ends (jobs.py). All windows of one
browser are one session; browsers that keep no cookies are one session together.
"""

from __future__ import annotations

import re
import secrets

from flask import Flask, Response, request

_COOKIE = "aotlens-session"
_NAME = re.compile(r"[\w-]{22}", re.ASCII)


def current() -> str:
    """Return the session of the request that is being answered; empty where the browser keeps no cookies."""
    name = request.cookies.get(_COOKIE, "")
    return name if _NAME.fullmatch(name) else ""


def keep_sessions(server: Flask) -> None:
    """Name every browser that opens a page and has no name yet."""

    @server.after_request
    def name_browser(response: Response) -> Response:
        if response.mimetype == "text/html" and not current():
            name = secrets.token_urlsafe(16)
            response.set_cookie(_COOKIE, name, httponly=True, samesite="Strict", secure=request.is_secure)
        return response
