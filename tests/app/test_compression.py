"""What the server sends: smaller, the same to the last byte, and files that never change are fetched once."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from typing import Any

import brotli
import pytest
from flask import Flask, Response

from app.core import compression
from app.core.cache import Memory
from app.core.compression import Encoding, compress, warm_up
from app.shell.app import App

DECODE = {"br": brotli.decompress, "gzip": gzip.decompress, None: bytes}
TEXT = b"The captain bowed to the captain. " * 100


@pytest.fixture
def server() -> Flask:
    """A text that all get, a question with an answer, and what is not to be touched."""
    server = Flask(__name__, static_folder=None)
    answers = {"text": (TEXT, "text/plain"), "short": (b"short", "text/plain"), "picture": (TEXT, "image/png")}

    @server.route("/<name>", methods=["GET", "POST"])
    def answer(name: str) -> Response:
        content, mimetype = answers[name]
        return Response(content, mimetype=mimetype)

    compress(server, Memory(2**24))
    return server


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip, deflate, br, zstd", "br"),
        ("gzip, deflate", "gzip"),
        ("br;q=0, gzip", "gzip"),
        ("*", "br"),
        ("identity", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_is_sent_is_what_was_answered(server: Flask, method: str, accepted: str, encoding: str | None):
    answer = server.test_client().open("/text", method=method, headers={"Accept-Encoding": accepted})
    assert answer.headers.get("Content-Encoding") == encoding
    assert DECODE[encoding](answer.data) == TEXT
    assert answer.headers["Vary"] == "Accept-Encoding"
    assert int(answer.headers["Content-Length"]) == len(answer.data)
    assert encoding is None or len(answer.data) < len(TEXT) / 10


def test_what_gains_nothing_is_left_alone(server: Flask):
    for path in ("/short", "/picture"):
        answer = server.test_client().get(path, headers={"Accept-Encoding": "br"})
        assert "Content-Encoding" not in answer.headers


def test_a_file_is_compressed_once_and_well_an_answer_quickly(server: Flask, monkeypatch: pytest.MonkeyPatch):
    calls: Counter[str] = Counter()

    def counted(name: str, compressed: Any) -> Any:
        def call(content: bytes) -> bytes:
            calls[name] += 1
            return compressed(content)

        return call

    brotli_ = compression.ENCODINGS["br"]
    counting = Encoding(well=counted("well", brotli_.well), quickly=counted("quickly", brotli_.quickly))
    monkeypatch.setattr(compression, "ENCODINGS", {"br": counting})
    client = server.test_client()
    for _ in range(3):
        client.get("/text", headers={"Accept-Encoding": "br"})
        client.post("/text", headers={"Accept-Encoding": "br"})
    assert calls == {"well": 1, "quickly": 3}


def test_the_first_load_is_small_and_its_files_are_kept(app: App):
    """Every file that the first page names; plotly comes with the first graph, and Heads has none."""
    client = app.server.test_client()
    warm_up(app.server, app.core.settings, "/")
    page = client.get("/", headers={"Host": "localhost"}).text
    paths = dict.fromkeys(["/", *re.findall(r'(?:src|href)="(/[^"]+)"', page)])
    sizes = {}
    for path in paths:
        with client.get(path, headers={"Host": "localhost", "Accept-Encoding": "br"}) as answer:
            sizes[path] = len(answer.data)
            assert len(answer.data) < 1000 or answer.headers["Content-Encoding"] == "br", path
            if path.startswith("/static/") or re.search(r"\.v\d[\w]+m\d+\.", path):
                assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable", path
            elif path != "/" and "favicon" not in path:
                assert "ETag" in answer.headers, path
    assert sum(sizes.values()) <= 900_000, sizes
