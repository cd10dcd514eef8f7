"""The server: waitress within the app's limits. It answers or closes every connection, and stops by finishing its work.

waitress accepts 100 connections as it comes, half-open ones too, and keeps each for 120 s: a hundred sockets that never
finish asking shut everybody out. Here there are 1,000, kept for 30 s (`Settings.max_connections`, `idle_seconds`).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from app.core.settings import Settings

#: Files of the process besides its connections: checkpoints, corpora, pipes, libraries.
_OTHER_FILES = 256
#: Seconds within which what arrives at a stop is still taken, and turns without any after which nothing is waited for.
_ARRIVING, _QUIET_TURNS = 1.0, 3
#: waitress may open three for a connection: its socket, and temporary files for a large request and a large answer.
_FILES_A_CONNECTION = 3


class Server(TcpWSGIServer):
    """The server of one listening socket, with an end that answers what has been asked."""

    _stopping = False

    def maintenance(self, now: float) -> None:
        """Close connections on which nothing has moved for a while, also those that do not fetch their answer.

        waitress spares a connection with a request under way, and waits to close one until it can be written to. Where
        an answer is not fetched neither ends, nor does the thread that writes it: eight of those are all of them.
        Under the lock: an answer that was long in the making is written and sent within one hold of it.
        """
        super().maintenance(now)
        for channel in list(self.active_channels.values()):
            with channel.outbuf_lock:
                if channel.total_outbufs_len and channel.last_activity < now - self.adj.channel_timeout:
                    channel.handle_close()

    def run(self) -> bool:
        """Serve until `stop`: true. Ctrl+C waits for nobody: false."""
        try:
            while not self._stopping:
                self._turn(self.adj.asyncore_loop_timeout)
        except (SystemExit, KeyboardInterrupt):
            self.task_dispatcher.shutdown()
            return False
        return True

    def stop(self) -> None:
        """Make `run` return, from a signal's handler or another thread; `drain` then finishes."""
        self._stopping = True
        self.pull_trigger()

    def drain(self, seconds: float) -> int:
        """Take no new connection, answer what has been asked, and close; returns how many went without an answer.

        What has not been asked whole is closed. After `seconds` the rest is closed, too.
        """
        self._take_what_has_come()
        wasyncore.dispatcher.close(self)
        deadline = time.monotonic() + seconds
        while self.active_channels and time.monotonic() < deadline:
            for channel in list(self.active_channels.values()):
                if not channel.requests and not channel.total_outbufs_len:
                    channel.will_close = True
            self._turn(0.1)
        left = list(self.active_channels.values())
        for channel in left:
            channel.handle_close()
        self.task_dispatcher.shutdown(timeout=0.1)
        self.trigger.close()
        return len(left)

    def _take_what_has_come(self) -> None:
        """Count what has arrived as asked: connections wait in the system to be accepted, one a turn."""
        end, quiet = time.monotonic() + _ARRIVING, 0
        while quiet < _QUIET_TURNS and time.monotonic() < end:
            before = len(self.active_channels)
            self._turn(0.02)
            quiet = quiet + 1 if len(self.active_channels) == before else 0

    def _turn(self, timeout: float) -> None:
        """Go once around all sockets."""
        wasyncore.loop(timeout, use_poll=self.adj.asyncore_use_poll, map=self._map, count=1)


def make_server(application: Callable[..., Iterable[bytes]], settings: Settings, listener: socket.socket) -> Server:
    """Return a server of `application` on a listening socket."""
    limits: dict[str, Any] = {
        "threads": settings.threads,
        "connection_limit": _affordable(settings.max_connections),
        "channel_timeout": settings.idle_seconds,
        "cleanup_interval": max(1, settings.idle_seconds // 6),
        # select() takes no file whose number is above 1023.
        "asyncore_use_poll": True,
        "max_request_body_size": settings.max_request_bytes,
        "max_request_header_size": settings.max_header_bytes,
        # A larger request goes to a temporary file, so that a thousand half-sent requests fit in memory.
        "inbuf_overflow": 64 * 2**10,
        # A proxy says whether the browser came over HTTPS, so that cookies are marked for it. Who makes that up only
        # keeps their own cookies from being sent; nothing else that proxies say is passed on.
        "trusted_proxy": "*",
        "trusted_proxy_headers": "x-forwarded-proto",
        "ident": None,
        "log_socket_errors": False,
    }
    adjustments = Adjustments(sockets=[listener], **limits)
    dispatcher = ThreadedTaskDispatcher()
    dispatcher.set_thread_count(settings.threads)
    info = (listener.family, listener.type, listener.proto, listener.getsockname())
    return Server(
        application, {}, True, listener, dispatcher=dispatcher, adj=adjustments, sockinfo=info, bind_socket=False
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 is any that is free. Raises OSError or UnicodeError."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
        # bind alone succeeds beside another listener that also reuses addresses; listen does not.
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener


def _affordable(connections: int) -> int:
    """Return as many of them as the process may open files for; its limit is raised as far as it goes."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_A_CONNECTION * connections + _OTHER_FILES
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted:
        soft = wanted if hard == unlimited else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == unlimited or soft >= wanted:
        return connections
    return max(16, (soft - _OTHER_FILES) // _FILES_A_CONNECTION)
