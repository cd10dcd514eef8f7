"""Asks for the token before anything else: every address but `/healthz`, every file, every callback.

A browser signs in with the printed address (`?token=…`) or on a page of its own, and from then on has a cookie: Flask's
session, signed with a key of this process, so that a restart signs everybody out. Programs send
`Authorization: Bearer TOKEN`.
"""

from __future__ import annotations

import html
import re
import secrets
from urllib.parse import urlencode

from flask import Flask, Response, redirect, request, session
from flask.sessions import SecureCookieSessionInterface

from app.core.access import Access, TooManyGuesses
from app.core.settings import Settings
from app.shell.health import HEALTH
from app.shell.static import HERE

_PATH = "/sign-in"
#: The sign-in page, whole in itself, since nothing else is answered before it.
FILE = HERE / "sign_in.html"
_SIGNED_IN = "signed-in"


class _SignedIn(SecureCookieSessionInterface):
    """Flask's session, whose cookie browsers never send in the open where it was given over HTTPS."""

    def get_cookie_secure(self, app: Flask) -> bool:
        return request.is_secure


def require_token(server: Flask, settings: Settings) -> None:
    """Let only those in who have the settings' token, where there is one."""
    if settings.token is None:
        return
    access = Access(settings.token)
    server.secret_key = secrets.token_bytes(32)
    server.session_interface = _SignedIn()
    server.config.update(
        # A browser sends cookies to every port of a host: two apps on one machine must not share one.
        SESSION_COOKIE_NAME=f"aotlens-signed-in-{settings.port}",
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",  # not Strict: a link that somebody sent opens signed in
    )

    @server.before_request
    def ask() -> Response | None:
        if request.path in (HEALTH, _PATH):
            return None
        asks_page = request.method == "GET" and request.accept_mimetypes.accept_html
        given, sent = request.args.get("token") if asks_page else None, _bearer()
        if signed_in():
            return None if given is None else _to(_here())
        try:
            if given is not None:
                if not access.right(given, request.remote_addr):
                    return _page(_here(), "The token of this address is not this app's.", 403)
                session[_SIGNED_IN] = True
                return _to(_here())
            if sent is not None and access.right(sent, request.remote_addr):
                return None
        except TooManyGuesses as error:
            return _page(_here(), str(error), 429, error.seconds)
        if asks_page and sent is None:
            return _to(f"{_PATH}?{urlencode({'next': _here()})}")
        return Response("Sign in first: open the app's address with its token.\n", 401, mimetype="text/plain")

    @server.get(_PATH)
    def show() -> Response:
        target = _own(request.args.get("next", "/"))
        return _to(target) if signed_in() else _page(target)

    @server.post(_PATH)
    def sign_in() -> Response:
        target = _own(request.form.get("next", "/"))
        try:
            if not access.right(request.form.get("token", "").strip(), request.remote_addr):
                return _page(target, "This is not the token.", 403)
        except TooManyGuesses as error:
            return _page(target, str(error), 429, error.seconds)
        session[_SIGNED_IN] = True
        return _to(target)


def signed_in() -> bool:
    """Return whether the request that is being answered comes from a browser that has signed in."""
    return session.get(_SIGNED_IN) is True


def _bearer() -> str | None:
    """The token that a program sends."""
    return request.authorization.token if request.authorization and request.authorization.type == "bearer" else None


def _here() -> str:
    """The address that is asked for, without a token."""
    rest = [(name, value) for name, value in request.args.items(multi=True) if name != "token"]
    return _own(request.path) + (f"?{urlencode(rest)}" if rest else "")


def _own(address: str) -> str:
    """An address of this app: browsers read `//name` and `/\\name` as another server's, and drop tabs and line ends,
    which no header can hold."""
    return "/" + re.sub(r"[\x00-\x1f\x7f]", "", address).lstrip("/\\ ")


def _to(address: str) -> Response:
    response = redirect(address, 303, Response)
    response.headers["Cache-Control"] = "no-store"
    return response


def _page(target: str, problem: str = "", status: int = 200, seconds: int | None = None) -> Response:
    """The page on which a person gives the token, and goes on to `target`."""
    notice = f'<p class="problem" id="problem" role="alert">{html.escape(problem)}</p>' if problem else ""
    marks = 'aria-invalid="true" aria-describedby="problem hint"' if problem else 'aria-describedby="hint"'
    page = (
        FILE.read_text("utf-8")
        .replace("{problem}", notice)
        .replace("{marks}", marks)
        .replace("{next}", html.escape(target))
    )
    response = Response(page, status, mimetype="text/html")
    # The form must say where it comes from, or it is taken for another site's.
    response.headers["Referrer-Policy"] = "same-origin"
    response.headers["Cache-Control"] = "no-store"
    if seconds is not None:
        response.headers["Retry-After"] = str(seconds)
    return response
