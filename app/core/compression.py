"""Compression of answers: what everybody gets is compressed well and once, an answer to one question quickly.

Scripts, styles and pages (GET) are the same for all, so each is compressed at a high quality and kept by its content.
Answers (POST, and maps of somebody's text) are compressed at a low one. Brotli, or gzip for browsers that don't offer
it: over plain HTTP, except from this machine itself, none does.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import brotli
from flask import Flask, Response, request

from app.core.cache import Cache, Memory
from app.core.settings import Settings

#: Less than this is not worth a header.
_LEAST_BYTES = 512
#: The type of arrays for the widget (aotlens/widget).
MAPS = "application/vnd.aotlens.maps"
_SHRINKS = re.compile(r"text/|application/(javascript|json|vnd\.aotlens)|image/(svg|x-icon)")
#: Dash puts `.v4_4_1m1795333428.` into the names of most of its files, after which it says how long they may be kept.
_KEPT_A_YEAR = re.compile(r"\bmax-age=31536000\b")


@dataclass(frozen=True)
class Encoding:
    """A way to compress: once and well, or at once."""

    well: Callable[[bytes], bytes]
    quickly: Callable[[bytes], bytes]


#: Encodings by HTTP name, the better first. Brotli's 10 and 11 take 6 and 11 times as long as 9 for 8 and 9% less.
ENCODINGS: Mapping[str, Encoding] = {
    "br": Encoding(
        well=lambda content: brotli.compress(content, quality=9),
        quickly=lambda content: brotli.compress(content, quality=4),
    ),
    "gzip": Encoding(
        well=lambda content: gzip.compress(content, 9, mtime=0),
        quickly=lambda content: gzip.compress(content, 1, mtime=0),
    ),
}


def compress(server: Flask, memory: Memory) -> None:
    """Compress every answer of `server` that gains by it; files that never change may be kept for good."""
    cache: Cache[tuple[str, bytes], bytes] = memory.cache(cost=len)

    @server.after_request
    def smaller(response: Response) -> Response:
        if _KEPT_A_YEAR.search(response.headers.get("Cache-Control", "")):
            response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        if not _worth_it(response):
            return response
        response.vary.add("Accept-Encoding")
        name = next((each for each in ENCODINGS if request.accept_encodings[each] > 0), None)
        if name is None:
            return response
        content, encoding = response.get_data(), ENCODINGS[name]
        if request.method in ("GET", "HEAD") and not response.cache_control.no_store:
            digest = hashlib.sha256(content).digest()
            response.set_data(cache.get((name, digest), lambda: encoding.well(content)))
        else:
            response.set_data(encoding.quickly(content))
        response.headers["Content-Encoding"] = name
        return response


def warm_up(server: Flask, settings: Settings, path: str, *later: str) -> None:
    """Compress the page at `path`, the files that it names and those that it loads `later`, before anybody asks."""
    client = server.test_client()
    own = {"Host": "localhost"} | ({} if settings.token is None else {"Authorization": f"Bearer {settings.token}"})
    page = client.get(path, headers={**own, "Accept-Encoding": "identity"}).text
    for address in dict.fromkeys([*later, path, *re.findall(r'(?:src|href)="(/[^"]+)"', page)]):
        with client.get(address, headers={**own, "Accept-Encoding": "br"}):
            pass


def _worth_it(response: Response) -> bool:
    if response.direct_passthrough or response.is_streamed or "Content-Encoding" in response.headers:
        return False
    return _SHRINKS.match(response.mimetype or "") is not None and len(response.get_data()) >= _LEAST_BYTES
