"""The boundary of all that answers: whatever goes wrong inside becomes an error reply with an id that the log has.

Tokenizers and other native code raise panics that no `except Exception` sees (`PanicException` is a BaseException).
Past this boundary they would end the server's work on a request with no answer, its connection left open for good.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask

from app.core.errors import logged, out_of_memory

log = logging.getLogger("aotlens.app")

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

#: The headers that every error reply has besides its text; it holds nothing that a page could run or keep.
_HEADERS = [
    ("Content-Type", "text/plain; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
]


class Boundary:
    """A WSGI application that answers every request that another does not.

    Answers are held until they are whole, so that one which fails half-way is not sent in part: each is made in memory
    before, and none streams.
    """

    def __init__(self, application: Application) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            status, headers, body = self._answer(environ)
        except BaseException as error:
            status, headers, body = _told(error, f"{environ.get('REQUEST_METHOD')} {environ.get('PATH_INFO')!r}")
        start_response(status, headers)
        return [body]

    def _answer(self, environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        """Return status, headers and body of the inner application's answer."""
        started: list[tuple[str, list[tuple[str, str]]]] = []
        parts: list[bytes] = []

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], None]:
            started.append((status, headers))
            return parts.append

        chunks = self._application(environ, start)
        try:
            parts.extend(chunks)
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()
        status, headers = started[-1]
        return status, headers, b"".join(parts)


def answer_always(server: Flask) -> None:
    """Put the boundary around `server`, which then leaves errors that are not HTTP's own to it."""
    server.config["PROPAGATE_EXCEPTIONS"] = True
    server.wsgi_app = Boundary(server.wsgi_app)  # type: ignore[method-assign]


def _told(error: BaseException, request: str) -> tuple[str, list[tuple[str, str]], bytes]:
    """The error reply of a request, which is logged."""
    id = logged(log, f"{request} failed")
    why = "There was not enough memory for this request" if out_of_memory(error) else "This request failed"
    body = f"{why} (error {id}). The terminal in which the app runs has the details under that number.\n".encode()
    return "500 Internal Server Error", [*_HEADERS, ("Content-Length", str(len(body)))], body
