"""Scripts and styles: those that the shell and the pages name, and no other file, each under its fingerprint.

    /static/0123456789abcdef/heads.js

A file that changes gets another address, so browsers may keep each for good.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flask import Flask, Response, abort

from aotlens.widget import module, style
from app.shell.page import Page

HERE = Path(__file__).with_name("static")
#: The scripts in the order in which the browser runs them; wiring.js, which pages' scripts need, is before those.
EARLY = ("theme.js",)
SCRIPTS = (
    "connection.js", "frames.js", "wiring.js", "listening.js", "settled.js", "address.js", "shell.js", "waiting.js",
    "value_table.js", "head_buttons.js", "tips.js", "python.js",
    "find.js", "late_graph.js", "maps.js", "matrix.js", "view_page.js", "pair_maps.js",
    "patch_maps.js", "pad.js",
)  # fmt: skip
#: The script that starts Dash, after all others.
LAST = "start.js"
STYLES = ("shell.css", "patch_maps.css")
_OF_PAGES = {"viewPage": "view_page", "pairMaps": "pair_maps", "patchMaps": "patch_maps"}
#: Scripts here that have functions of their own, as pages do, by the name that they are called by.
OF_PAGES = {name: HERE / f"{file}.js" for name, file in _OF_PAGES.items()}

_MIME = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css"}


@dataclass(frozen=True, kw_only=True)
class StaticFile:
    """A file as it is served."""

    name: str
    content: bytes

    @property
    def path(self) -> str:
        """Return its address, with a fingerprint of the content."""
        return f"/static/{hashlib.sha256(self.content).hexdigest()[:16]}/{self.name}"

    @property
    def tag(self) -> str:
        """The HTML that loads it; a module is run as soon as it is there, without waiting for other scripts."""
        if self.name.endswith(".mjs"):
            return f'<script type="module" async src="{self.path}"></script>'
        if self.name.endswith(".css"):
            return f'<link rel="stylesheet" href="{self.path}">'
        return f'<script src="{self.path}"></script>'


def read(path: Path) -> StaticFile:
    """Return a file of the shell or of a page."""
    return StaticFile(name=path.name, content=path.read_bytes())


def scripts(pages: Sequence[Page], wiring: str) -> list[StaticFile]:
    """Return the shell's, the pages', what ties them to Dash's callbacks, and what starts Dash."""
    own = [page.script for page in pages if page.script is not None]
    tied = StaticFile(name="callbacks.js", content=wiring.encode())
    return [*(read(HERE / name) for name in SCRIPTS), *map(read, own), tied, read(HERE / LAST)]


def early() -> list[StaticFile]:
    """Return the files that run before anything is drawn: the theme, and the widget that draws maps of heads."""
    widget = module(app=True).encode()
    return [*(read(HERE / name) for name in EARLY), StaticFile(name="widget.mjs", content=widget)]


def styles(pages: Sequence[Page]) -> list[StaticFile]:
    """Return the widget's, the shell's, then the pages'."""
    own = [page.style for page in pages if page.style is not None]
    shared = StaticFile(name="widget.css", content=style().encode())
    return [shared, *(read(HERE / name) for name in STYLES), *map(read, own)]


def serve(server: Flask, files: Sequence[StaticFile]) -> None:
    """Serve these files only."""
    by_path = {file.path: file for file in files}

    @server.get("/static/<path:rest>")
    def static_file(rest: str) -> Response:
        file = by_path.get(f"/static/{rest}")
        if file is None:
            abort(404)
        response = Response(file.content, mimetype=_MIME[Path(file.name).suffix])
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response


def tags(files: Sequence[StaticFile]) -> str:
    """Return the HTML that loads them, in order."""
    return "\n        ".join(file.tag for file in files)
