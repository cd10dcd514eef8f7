"""Who may ask (trusted hosts, same origin), and what a page may do (Content-Security-Policy).

A page elsewhere can make a browser send requests to 127.0.0.1 under a name of its own (DNS rebinding), and Dash by
itself answers them. A foreign Host, and a POST from a foreign Origin, get 400. (Flask's TRUSTED_HOSTS cuts names at
the first colon, so it can't name [::1]; hence our own comparison.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from flask import Flask, Response, abort, request

from app.core.settings import Settings

_HOST = re.compile(r"(?P<name>[\w.-]+|\[[0-9a-fA-F:.]+\])(:\d{1,5})?", re.ASCII)

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # The address holds the prompt, which is nobody else's business.
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def content_security_policy(script_hashes: Sequence[str]) -> str:
    """The policy of every page: nothing from elsewhere, no inline script but those hashed, no eval.

    Mantine, plotly and ag-grid write style attributes and style elements, so styles need 'unsafe-inline'. Images may
    be data: (thumbnails) and blob: (plotly's export).
    """
    rules = {
        "default-src": ["'self'"],
        "script-src": ["'self'", *script_hashes],
        "style-src": ["'self'", "'unsafe-inline'"],
        "img-src": ["'self'", "data:", "blob:"],
        "font-src": ["'self'", "data:"],
        "connect-src": ["'self'"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
    }
    return "; ".join(f"{name} {' '.join(sources)}" for name, sources in rules.items())


def secure(server: Flask, settings: Settings, script_hashes: Sequence[str]) -> None:
    """Applies all of it; `script_hashes` are those of every inline script."""
    server.config["MAX_CONTENT_LENGTH"] = settings.max_request_bytes
    trusted = {host.lower() for host in settings.hosts}
    policy = content_security_policy(script_hashes)

    @server.before_request
    def refuse_foreign() -> None:
        host = request.headers.get("Host", "")
        named = _HOST.fullmatch(host)
        if named is None or named.group("name").lower() not in trusted:
            abort(400, "This server isn't known by that name; --trusted-host NAME makes it known.")
        origin = request.headers.get("Origin")
        if request.method != "GET" and origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            abort(400, "This request comes from another site.")

    @server.after_request
    def add_headers(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        for name, value in _HEADERS.items():
            response.headers[name] = value
        return response
