"""Protection: who may ask (trusted hosts, same origin), and what a page may do (Content-Security-Policy).

A page elsewhere can make a browser send requests to 127.0.0.1 under a name of its own (DNS rebinding), and Dash by
itself answers them. A foreign Host, and a POST from a foreign Origin, get 400. (Flask's TRUSTED_HOSTS cuts names at
the first colon, so it can't name [::1]; hence our own comparison.) So does what a browser says comes from another site,
unless it is a link.
"""

from __future__ import annotations

from collections.abc import Sequence

from flask import Flask, Response, abort, request

from app.core.hosts import WILDCARDS, is_address, named
from app.core.settings import Settings

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # The address holds the prompt, which is nobody else's business.
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Copy link and Copy write to the clipboard; nothing else of the machine is asked for.
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), hid=(), microphone=(), midi=(), payment=(), "
    "serial=(), usb=(), clipboard-write=(self)",
}


def content_security_policy(script_hashes: Sequence[str]) -> str:
    """Return the policy of every page: nothing from elsewhere, no inline script but those hashed, no eval.

    Mantine and plotly write style attributes and style elements, so styles need 'unsafe-inline'. Images may
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
    """Protect every request and answer of `server`; `script_hashes` are those of every inline script."""
    server.config["MAX_CONTENT_LENGTH"] = settings.max_request_bytes
    trusted = {host.lower() for host in settings.hosts}
    # An address leads to itself only: it is names that somebody may let point here.
    any_address = settings.host in WILDCARDS
    policy = content_security_policy(script_hashes)

    @server.before_request
    def refuse_foreign() -> None:
        host = request.headers.get("Host", "")
        name = named(host)
        if name is None or not (name in trusted or (any_address and is_address(name))):
            abort(400, "This server isn't known by that name; --trusted-host NAME makes it known.")
        origin = request.headers.get("Origin")
        own = {f"{scheme}://{host.lower()}" for scheme in ("http", "https")}
        foreign = request.method != "GET" and origin is not None and origin.lower() not in own
        # A browser may leave Origin out; a link from another site is followed (navigate), all else of it is refused.
        is_link = request.method == "GET" and request.headers.get("Sec-Fetch-Mode", "navigate") == "navigate"
        if foreign or (request.headers.get("Sec-Fetch-Site") == "cross-site" and not is_link):
            abort(400, "This request comes from another site.")

    @server.after_request
    def add_headers(response: Response) -> Response:
        response.headers["Content-Security-Policy"] = policy
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        # Scripts and styles say themselves how long they keep; all else is somebody's texts and models.
        if "Cache-Control" not in response.headers:
            # Chromium looks up the icon at each new address.
            caching = {"text/html": "no-cache", "image/x-icon": "public, max-age=86400"}
            response.headers["Cache-Control"] = caching.get(response.mimetype or "", "no-store")
        return response
