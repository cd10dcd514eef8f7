"""What somebody is likely to ask next, computed while nobody asks for anything."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from flask import Flask

_STEP = 0.05  # seconds from one look to the next


class Ahead:
    """The latest offer of work, done piece by piece in the background: each begins when no request has been under way
    for `quiet` seconds. What fails is left, since whoever asks for it is told why."""

    def __init__(self, quiet: float) -> None:
        self.quiet = quiet
        self._lock = threading.Lock()
        self._work: Iterator[Callable[[], Any]] | None = None
        self._under_way, self._last = 0, time.monotonic()

    def watch(self, server: Flask) -> None:
        """Note when the server has requests under way."""
        server.before_request(lambda: self.request(1))
        server.teardown_request(lambda _: self.request(-1))

    def request(self, change: int) -> None:
        """Note that a request has begun (1) or ended (-1)."""
        with self._lock:
            self._under_way, self._last = max(self._under_way + change, 0), time.monotonic()

    def offer(self, work: Iterable[Callable[[], Any]]) -> None:
        """Take work in the place of what is left of earlier offers."""
        with self._lock:
            idle, self._work = self._work is None, iter(work)
        if idle:
            # No daemon, as the server's threads are that it would inherit that from: no piece is cut off at the exit.
            threading.Thread(target=self._run, name="ahead", daemon=False).start()

    def _run(self) -> None:
        while threading.main_thread().is_alive():
            with self._lock:
                work, rest = self._work, self._last + self.quiet - time.monotonic()
                rest = max(rest, _STEP) if self._under_way else rest
            if rest > 0:
                time.sleep(min(rest, _STEP))
                continue
            piece = None
            with suppress(Exception):
                piece = next(work, None) if work else None
                if piece is not None:
                    piece()
            with self._lock:
                if piece is None and self._work is work:
                    self._work = None
                    return
