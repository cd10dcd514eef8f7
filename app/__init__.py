"""The Dash app. It computes nothing itself: pages ask `aotlens`, through services of their own.

__main__.py    `python -m app --checkpoints DIR --port N`
live.py        serve(model): the app on models that a script holds
factory.py     create_app(settings) -> a Dash app; no global app
server.py      waitress within the app's limits, and its end
screenshot.py  `python -m app.screenshot OUT` makes the README's picture
core/          checkpoints, inference, corpora, jobs, files, settings, addresses: knows no page, and no Dash
shell/         frame, navigation, panels, tables, tokens, callbacks: what every page uses
pages/         a folder a page: all that it is
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from app.start import missing

if TYPE_CHECKING:
    from app.live import serve

__all__ = ["serve"]


def __getattr__(name: str) -> Any:
    """Import `serve` on its first use, since it brings Dash. Raises ImportError where the extra `app` is missing."""
    if name != "serve":
        raise AttributeError(f"module 'app' has no attribute {name!r}")
    if lacking := missing():
        raise ImportError(f"app.serve needs {', '.join(lacking)}: pip install 'aotlens[app]'")
    from app.live import serve

    return serve
