"""The server under half-open connections, clients that fetch nothing, panics, and a stop: all others are answered."""

from __future__ import annotations

import http.client
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest

from app import server as server_module
from app.core.boundary import Boundary
from app.core.settings import Settings
from app.server import Server, listen, make_server
from tests.app.conftest import eventually

#: Seconds after which a client of a test gives up: only a test that fails waits that long.
PATIENCE = 60


def hello(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    """As much as the query says, or a word."""
    body = b"x" * int(environ.get("QUERY_STRING") or 0) or b"hello"
    start("200 OK", [("Content-Length", str(len(body)))])
    return [body]


@contextmanager
def running(application: Any = hello, **limits: Any) -> Iterator[Server]:
    """A server in a thread; what it has under way at the end is left."""
    server = make_server(application, Settings(**limits), listen("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield server
    server.stop()
    thread.join(PATIENCE)
    server.drain(0)


def connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.effective_port), timeout=PATIENCE)


def asked(server: Server, path: str = "/") -> tuple[int, bytes]:
    """Status and body."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.effective_port, timeout=PATIENCE)) as client:
        client.request("GET", path)
        answer = client.getresponse()
        return answer.status, answer.read()


def channels(server: Server) -> list[Any]:
    """The server's side of its connections."""
    return list(server.active_channels.values())


def half_open(server: Server) -> socket.socket:
    """A client that never finishes asking."""
    client = connected(server)
    client.sendall(b"POST /_dash-update-component HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n")
    return client


def test_two_hundred_half_open_connections_shut_nobody_out():
    with running() as server:
        idle = [half_open(server) for _ in range(200)]
        try:
            assert [asked(server) for _ in range(20)] == [(200, b"hello")] * 20
        finally:
            for client in idle:
                client.close()


def test_a_connection_on_which_nothing_moves_is_closed():
    with running(idle_seconds=1) as server, closing(half_open(server)) as idle:
        assert idle.recv(1) == b""  # in a second or two, where waitress's own settings took 120


def test_who_fetches_no_answer_holds_no_thread_for_good():
    # Answers beyond waitress's 16 MB wait for their client, in the thread that makes them; here both threads.
    request = f"GET /?{2**20} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 40
    with running(threads=2, idle_seconds=1) as server:
        clients = [connected(server) for _ in range(2)]
        try:
            for client in clients:
                client.sendall(request)
            eventually(lambda: sum(one.total_outbufs_len > 2**24 for one in channels(server)) == 2)
            assert asked(server) == (200, b"hello")
        finally:
            for client in clients:
                client.close()


def test_an_answer_that_took_longer_than_a_connection_may_idle_is_not_cut_off_while_it_is_sent():
    class BeingAnswered:
        """A connection whose thread holds the lock, sends the answer's head, and lets go."""

        total_outbufs_len, last_activity, requests, closed = 99, 0.0, ["under way"], False
        outbuf_lock = property(lambda self: self)

        def __enter__(self) -> None:
            self.total_outbufs_len, self.last_activity = 0, time.time()

        def __exit__(self, *_: object) -> None: ...

        def handle_close(self) -> None:
            self.closed = True

    server, connection = make_server(hello, Settings(idle_seconds=1), listen("127.0.0.1", 0)), BeingAnswered()
    server.active_channels[-1] = connection
    server.maintenance(time.time())
    del server.active_channels[-1]
    server.drain(0)
    assert not connection.closed


def test_a_large_request_is_refused_before_it_is_read():
    with running(max_request_bytes=1000) as server, closing(connected(server)) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n" + b"x" * 1001)
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "connections"),
    [
        (1024, 10**6, 3256, 1000),  # raised to what is wanted
        (1024, 1024, None, 256),  # no further than it goes
        (10**6, 10**6, None, 1000),
        (-1, -1, None, 1000),
        (256, -1, 3256, 1000),
    ],
)
def test_connections_fit_the_files_that_may_be_open(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: int | None, connections: int
):
    resource = pytest.importorskip("resource", reason="this system has no limit on files")
    limits: list[tuple[int, int]] = []
    infinite = resource.RLIM_INFINITY
    told = tuple(infinite if one == -1 else one for one in (soft, hard))
    monkeypatch.setattr(resource, "getrlimit", lambda _: told)
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.append(wanted))
    assert server_module._affordable(1000) == connections
    assert [one for one, _ in limits if one != soft] == ([] if raised is None else [raised])


# ── a stop ───────────────────────────────────────────────────────────────────────────────────────────────────


class Slow:
    """An application that answers when it is told to."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        self.begun.set()
        assert self.go_on.wait(PATIENCE)
        return hello(environ, start)


def test_a_stop_answers_what_has_been_asked_and_takes_no_more():
    slow, left = Slow(), []
    server = make_server(slow, Settings(), listen("127.0.0.1", 0))

    def serve() -> None:
        if server.run():
            left.append(server.drain(PATIENCE))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with closing(half_open(server)) as idle, closing(connected(server)) as client:
        client.sendall(f"GET /?{2**21} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert slow.begun.wait(PATIENCE)
        server.stop()
        assert idle.recv(1) == b""  # closed: it has not asked for anything yet
        with pytest.raises(OSError):
            connected(server)
        slow.go_on.set()
        answer = b"".join(iter(lambda: client.recv(2**16), b""))
    thread.join(PATIENCE)
    assert answer.startswith(b"HTTP/1.1 200 OK") and len(answer) > 2**21
    assert left == [0]


def test_what_has_come_before_a_stop_is_answered():
    """Thirty requests that wait in the system to be accepted, at a server that has not looked at them yet."""

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        start("200 OK", [("Content-Length", "2")])
        return [b"ok"]

    server = make_server(answer, Settings(), listen("127.0.0.1", 0))
    with ExitStack() as opened:
        clients = [opened.enter_context(closing(connected(server))) for _ in range(30)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert server.drain(PATIENCE) == 0
        answers = [b"".join(iter(lambda client=client: client.recv(2**16), b"")) for client in clients]
    assert all(one.startswith(b"HTTP/1.1 200 OK") and one.endswith(b"ok") for one in answers)


def test_a_stop_does_not_wait_for_ever():
    slow = Slow()
    server = make_server(slow, Settings(), listen("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    with closing(connected(server)) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert slow.begun.wait(PATIENCE)
        server.stop()
        thread.join(PATIENCE)
        assert server.drain(0.1) == 1
        assert client.recv(1) == b""
    slow.go_on.set()


# ── what goes wrong ──────────────────────────────────────────────────────────────────────────────────────────


class Panic(BaseException):
    """As PyO3 raises them: no Exception."""


@pytest.mark.parametrize("error", [Panic("in Rust"), MemoryError(), SystemExit(3), ZeroDivisionError("ours")])
@pytest.mark.parametrize("late", [False, True])
def test_whatever_goes_wrong_is_answered_with_an_id_that_the_log_has(
    error: BaseException, late: bool, caplog: pytest.LogCaptureFixture
):
    def broken(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        def halfway() -> Iterator[bytes]:
            yield b"the first half"
            raise error

        if not late:
            raise error
        start("200 OK", [("Content-Length", "1000")])
        return halfway()

    with caplog.at_level(logging.ERROR, "aotlens.app"), running(Boundary(broken)) as server:
        status, body = asked(server)
        assert status == 500
        id = re.search(r"error ([0-9a-f]{8})", body.decode())
        assert id is not None and id.group(1) in caplog.text
        assert type(error).__name__ in caplog.text and "Rust" not in body.decode()
        assert ("not enough memory" in body.decode()) == isinstance(error, MemoryError)
        assert asked(server)[0] == 500  # and the next one
