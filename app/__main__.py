"""Serve the app:

    python -m app --checkpoints DIR --host 127.0.0.1 --port 8050

It prints one line with the address, and serves until Ctrl+C.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from app.core.access import checked_token, new_token
from app.core.hosts import WILDCARDS, checked_name
from app.core.settings import TEXTS, Settings

if TYPE_CHECKING:
    from app.core.catalog import Catalog


class StartError(Exception):
    """The reason why the app can't start, with what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, check and serve. Returns the exit code."""
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
        "--trusted-host", metavar="NAME", type=_as_argument(checked_name), action="append", default=[],
        help="another name by which browsers address this server, such as a proxy's; others are refused",
    )  # fmt: skip
    access = parser.add_mutually_exclusive_group()
    access.add_argument(
        "--token", type=_as_argument(checked_token), default=None,
        help="what whoever opens the app must have, on this machine, too (or $AOTLENS_TOKEN); where others can reach "
        "it (--host, --trusted-host), one is made unless it is given",
    )  # fmt: skip
    access.add_argument("--no-token", action="store_true", help="let whoever can reach the app use it, without a token")
    parser.add_argument("--device", default="auto", help="auto, cuda, mps or cpu (default: %(default)s)")
    parser.add_argument(
        "--max-tokens", type=_positive, default=defaults.max_tokens,
        help="longest prompt of which all patterns are held (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--max-long-tokens", type=_positive, default=defaults.max_long_tokens,
        help="longest prompt of the page Heads, whose maps are then drawn in parts (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--corpus", metavar="SPEC", action="append", default=[],
        help="text that the Skip-trigrams page may check its rows against, and heads may be distilled on: file:PATH or "
        "dir:PATH, beside the novels and the standard library that are always there; may be given more than once",
    )  # fmt: skip
    parser.add_argument(
        "--images", metavar="SPEC", action="append", default=[],
        help="labelled images for the page Images, besides digits and fashion-sample: npz:PATH, folder:PATH, "
        "openml:NAME or hf:NAME (these two are fetched when they are first looked at, unless this machine has them); "
        "may be given more than once",
    )  # fmt: skip
    parser.add_argument(
        "--distillation", metavar="FILE", type=Path, action="append", default=[],
        help="a distillation to show beside the bundled ones; may be given more than once",
    )  # fmt: skip
    given = parser.parse_args(argv)
    shared = Settings(host=given.host, trusted_hosts=tuple(given.trusted_host)).shared
    return Settings(
        token=_token(parser, given.token, made=shared) if not given.no_token else None,
        no_token=given.no_token,
        corpora=tuple(dict.fromkeys((*given.corpus, *TEXTS))),
        images=tuple(given.images),
        distillations=tuple(given.distillation),
        checkpoints=tuple(given.checkpoints),
        host=given.host,
        port=given.port,
        trusted_hosts=tuple(given.trusted_host),
        device=given.device,
        max_tokens=given.max_tokens,
        max_long_tokens=given.max_long_tokens,
    )


def _as_argument(check: Callable[[str], str]) -> Callable[[str], str]:
    """A check whose message argparse says."""

    def checked(text: str) -> str:
        try:
            return check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked


def _token(parser: argparse.ArgumentParser, given: str | None, *, made: bool) -> str | None:
    """The token that was given, on the command line or in the environment, where nobody else sees it; or a new one."""
    environment = os.environ.get("AOTLENS_TOKEN")
    try:
        return given or (environment and checked_token(environment)) or (new_token() if made else None)
    except ValueError as error:
        parser.error(f"AOTLENS_TOKEN: {error}")


def _serve(settings: Settings) -> None:
    for folder in settings.checkpoints:
        if not folder.expanduser().is_dir():
            raise StartError(f"--checkpoints {folder}: there is no such folder. Check the path.")
    for file in settings.distillations:
        if not file.expanduser().is_file():
            raise StartError(f"--distillation {file}: there is no such file. Check the path.")
    listener = listening(settings)
    try:
        # After the cheap checks, because it takes a second or two.
        from aotlens.checkpoints import CheckpointError
        from app.core import Core
        from app.core.allocator import give_memory_back
        from app.core.cache import Memory
        from app.core.compression import warm_up
        from app.core.images import Images
        from app.factory import create_app
        from app.server import make_server
        from app.shell.graph import PLOTLY

        give_memory_back()
        try:
            Images(settings, Memory(settings.memory_bytes))
        except ValueError as error:
            raise StartError(f"--images {error}") from error
        try:
            core = Core.start(settings)
        except ValueError as error:
            raise StartError(f"--corpus {error}") from error
        _check_distillations(settings)
        try:
            checkpoints = core.catalog.list()
        except CheckpointError as error:
            raise StartError(str(error)) from error
        if not checkpoints:
            places = ", ".join(map(str, settings.checkpoints)) or "the bundled and your own checkpoints"
            raise StartError(
                f"no checkpoints in {places}. Give a folder of checkpoints with --checkpoints DIR, or train one: "
                "aotlens train --help."
            )
        app = create_app(settings, core)
        # Its warnings about a queue of a few requests alarm and mean nothing here.
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        server = make_server(app.server, settings, listener)
    except BaseException:
        listener.close()
        raise
    threading.Thread(target=_warm_up, args=(core.catalog,), daemon=True).start()
    threading.Thread(target=warm_up, args=(app.server, settings, "/", PLOTLY), daemon=True).start()
    # As whoever runs it in the background stops it: what has been asked is still answered.
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    print(
        f"aotlens is at {address(settings)} ({_count(len(checkpoints))}){reach(settings)}. Ctrl+C stops it.", flush=True
    )
    if server.run():
        unanswered = server.drain(settings.drain_seconds)
        if unanswered:
            print(f"aotlens: stopped; {unanswered} of its answers took too long to wait for.", file=sys.stderr)


def _check_distillations(settings: Settings) -> None:
    if settings.distillations:
        from aotlens.distill import load_record

        try:
            for file in settings.distillations:
                load_record(file.expanduser())
        except ValueError as error:
            raise StartError(f"--distillation {error}") from error


def address(settings: Settings) -> str:
    """Return the address to type into a browser."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    return f"http://{host}:{settings.port}" + (f"/?token={settings.token}" if settings.token else "")


def reach(settings: Settings) -> str:
    """Say who can reach the app, for the end of the line that it prints."""
    if not settings.shared:
        return ", for this machine alone" if settings.token is None else ", for whoever has the token on this machine"
    names = ", ".join(settings.trusted_hosts)
    others = f"; others use {names} in place of the host" if names else ""
    if settings.host in WILDCARDS and not names:
        others = "; others use this machine's name or address in place of the host"
    if settings.token is None:
        return f", for everybody who can reach it: no token is asked for{others}"
    return f", for whoever has this address or its token{others}"


def listening(settings: Settings) -> socket.socket:
    """Return the listening socket, made here so that a port in use is known before anything is loaded. Raises
    StartError."""
    from app.server import listen

    try:
        return listen(settings.host, settings.port)
    except (OSError, UnicodeError) as error:
        raise StartError(_why(settings, error)) from error


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
