"""`serve(model)`: the app on models that a script or a notebook holds, beside the checkpoints that are there anyway.

from app import serve
serve({"mine": model, "theirs": other}, port=8050)          # until Ctrl+C
with serve(model, block=False) as served:                   # in a notebook
    print(served.address)
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from app.__main__ import address, listening
from app.core import Core
from app.core.access import new_token
from app.core.settings import Settings
from app.factory import create_app
from app.server import make_server

if TYPE_CHECKING:
    from aotlens.models import AttentionOnlyTransformer
    from app.server import Server


class Served:
    """An app that serves in a thread of this process, until `stop`."""

    def __init__(self, server: Server, settings: Settings) -> None:
        self.address = address(settings)
        """The address to open in a browser."""
        self._server, self._settings = server, settings
        self._thread = threading.Thread(target=server.run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Answer what has been asked, and end; a second call does nothing."""
        if self._thread.is_alive():
            self._server.stop()
            self._thread.join()
            self._server.drain(self._settings.drain_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Served at {self.address}" if self._thread.is_alive() else "Served, stopped"


def serve(
    models: AttentionOnlyTransformer | Mapping[str, AttentionOnlyTransformer],
    *,
    port: int = 8050,
    host: str = "127.0.0.1",
    token: str | None = None,
    block: bool = True,
) -> Served | None:
    """Open the app on a model, or on models by name, as they are now: call it again after their weights have changed.

    They come first in the list of checkpoints and hide those of the same name; a model without a name is called
    `model`. The app runs them in this process, one forward pass of a model at a time. With `block` it serves until
    Ctrl+C, as `python -m app` does; without, it returns what serves, in a thread of its own. `port=0` takes any port
    that is free.
    Where others can reach `host`, a token is asked for; one is made unless it is given, and is in the address.

    Raises `ValueError` for what is no model of aotlens, and for no models; `app.__main__.StartError` for a port in use.
    """
    named = dict(models) if isinstance(models, Mapping) else {_name(models): models}
    if not named:
        raise ValueError("serve: expected a model, or a mapping of names to models, got an empty mapping.")
    settings = Settings(host=host, port=port, token=token, first_checkpoint=next(iter(named)))
    if settings.shared and token is None:
        settings = replace(settings, token=new_token())
    core = Core.start(settings, models=named)
    listener = listening(settings)
    try:
        settings = replace(settings, port=listener.getsockname()[1])
        server = make_server(create_app(settings, core).server, settings, listener)
    except BaseException:
        listener.close()
        raise
    if not block:
        return Served(server, settings)
    print(f"aotlens is at {address(settings)}. Ctrl+C stops it.", flush=True)
    server.run()
    return None


def _name(model: Any) -> str:
    card = getattr(model, "card", None)
    return getattr(card, "name", None) or "model"
