"""Serve the app:

    python -m app --checkpoints DIR --host 127.0.0.1 --port 8050

It prints one line with the address, and serves until Ctrl+C.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from app.core.settings import Settings

if TYPE_CHECKING:
    from app.core.catalog import Catalog


class StartError(Exception):
    """Why the app can't start, and what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Parses, checks, serves. Returns the exit code."""
    settings = _parse(argv)
    try:
        _serve(settings)
    except StartError as error:
        print(f"aotlens: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print()
    return 0


def _parse(argv: Sequence[str] | None) -> Settings:
    parser = argparse.ArgumentParser(
        prog="python -m app",
        description="Open trained attention-only models in a browser and read off their heads.",
        epilog="Bundled checkpoints and those in $AOTLENS_HOME/checkpoints (~/.cache/aotlens) are always there.",
    )
    defaults = Settings()
    parser.add_argument(
        "--checkpoints", metavar="DIR", type=Path, action="append", default=[],
        help="a checkpoint, or a folder of checkpoints; may be given more than once",
    )  # fmt: skip
    parser.add_argument("--host", default=defaults.host, help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=defaults.port, help="port to listen on (default: %(default)s)")
    parser.add_argument(
        "--trusted-host", metavar="NAME", action="append", default=[],
        help="another name by which browsers address this server, such as a proxy's; others are refused",
    )  # fmt: skip
    parser.add_argument("--device", default="auto", help="auto, cuda, mps or cpu (default: %(default)s)")
    parser.add_argument(
        "--max-tokens", type=_positive, default=defaults.max_tokens, help="longest prompt (default: %(default)s)"
    )
    parser.add_argument(
        "--corpus", metavar="SPEC", action="append", default=[],
        help="text that the Skip-trigrams page may hold its rows against, and heads may be distilled on: stdlib, "
        "file:PATH or dir:PATH; may be given more than once",
    )  # fmt: skip
    parser.add_argument(
        "--distillation", metavar="FILE", type=Path, action="append", default=[],
        help="a distillation to show beside the bundled ones; may be given more than once",
    )  # fmt: skip
    given = parser.parse_args(argv)
    return Settings(
        corpora=tuple(given.corpus),
        distillations=tuple(given.distillation),
        checkpoints=tuple(given.checkpoints),
        host=given.host,
        port=given.port,
        trusted_hosts=tuple(given.trusted_host),
        device=given.device,
        max_tokens=given.max_tokens,
    )


def _serve(settings: Settings) -> None:
    for folder in settings.checkpoints:
        if not folder.expanduser().is_dir():
            raise StartError(f"--checkpoints {folder}: there is no such folder. Check the path.")
    for file in settings.distillations:
        if not file.expanduser().is_file():
            raise StartError(f"--distillation {file}: there is no such file. Check the path.")
    listener = _listen(settings)
    try:
        # After the cheap checks, because it takes a second or two.
        from waitress import create_server

        from aotlens.checkpoints import CheckpointError
        from app.core import Core
        from app.core.compression import warm_up
        from app.factory import create_app
        from app.shell.graph import PLOTLY

        try:
            core = Core.start(settings)
        except ValueError as error:
            raise StartError(f"--corpus {error}") from error
        _check_distillations(settings)
        try:
            found = core.catalog.list()
        except CheckpointError as error:
            raise StartError(str(error)) from error
        if not found:
            places = ", ".join(map(str, settings.checkpoints)) or "the bundled and your own checkpoints"
            raise StartError(
                f"no checkpoints in {places}. Give a folder of checkpoints with --checkpoints DIR, or train one: "
                "aotlens train --help."
            )
        app = create_app(settings, core)
        # Its warnings about a queue of a few requests alarm and mean nothing here.
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        server = create_server(app.server, sockets=[listener], threads=settings.threads, ident=None)
    except BaseException:
        listener.close()
        raise
    threading.Thread(target=_warm_up, args=(core.catalog,), daemon=True).start()
    threading.Thread(target=warm_up, args=(app.server, "/", PLOTLY), daemon=True).start()
    print(f"aotlens is at {address(settings)} ({_count(len(found))}). Ctrl+C stops it.", flush=True)
    server.run()


def _check_distillations(settings: Settings) -> None:
    if settings.distillations:
        from aotlens.distill import load_record

        try:
            for file in settings.distillations:
                load_record(file.expanduser())
        except ValueError as error:
            raise StartError(f"--distillation {error}") from error


def address(settings: Settings) -> str:
    """What to type into a browser."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"http://{host}:{settings.port}"


def _listen(settings: Settings) -> socket.socket:
    """The listening socket, made here so that a port in use is known before anything is loaded."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host.strip("[]"), settings.port))
        # bind alone succeeds beside another listener that also reuses addresses; listen does not.
        listener.listen(128)
    except (OSError, UnicodeError) as error:
        listener.close()
        raise StartError(_why(settings, error)) from error
    return listener


def _why(settings: Settings, error: Exception) -> str:
    code = getattr(error, "errno", None)
    if code == errno.EADDRINUSE:
        return (
            f"port {settings.port} on {settings.host} is in use, perhaps by another aotlens. Stop that one, or choose "
            f"another port: --port {settings.port + 1 if settings.port < 65535 else 8051}."
        )
    if code == errno.EACCES:
        return f"port {settings.port} may not be used by this account; choose one above 1023, such as --port 8050."
    return f"can't listen on {settings.host}:{settings.port}: {error}. Check --host."


def _warm_up(catalog: Catalog) -> None:
    """Imports torch and loads the first model while the browser opens, so that the first picture comes sooner."""
    name = catalog.default()
    if name is not None:
        try:
            catalog.load(name)
        except Exception:
            # Whoever opens it gets the message.
            logging.getLogger("aotlens.app").debug("the first model could not be loaded", exc_info=True)


def _count(number: int) -> str:
    return f"{number} checkpoint{'' if number == 1 else 's'}"


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"expected a port from 1 to 65535, got {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def _end(code: int) -> NoReturn:
    """Ends the process without waiting for threads at work in native code, which abort() when Python goes first.

    Nothing is lost: jobs write whole files or none, and resume from what they last saved.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _end(main())
