"""Threads that share a model: plain forward passes run side by side, a run with hooks runs alone.

Hooks are state of the model, so hooks that one thread puts on for a run are called by every forward pass that
another thread makes meanwhile: its cache and its logits would be wrong, silently.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class RunLock:
    """Shared by any number of plain runs, or held by one thread that runs with hooks.

    - Requests are granted in the order of arrival, so neither kind of run starves the other.
    - A thread that holds the lock passes: a run inside a run never waits for itself.
    - A thread that asks for hooks inside a plain run (from a hook that `add_hook` left, say) stands still there, so
      it counts as no plain run while it waits; two such threads take turns.
    - A copy or a pickle of the lock is a new lock that nobody holds: threads belong to one model in one process.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._queue: deque[object] = deque()  # one ticket for each request that waits, oldest first
        self._plain_runs: dict[int, int] = {}  # thread -> how deep its plain runs are nested
        self._hooked_thread: int | None = None
        self._hooked_depth = 0

    def __reduce__(self) -> tuple[type[RunLock], tuple[()]]:
        return type(self), ()

    # Pairs of methods rather than context managers: torch.compile refuses to step over a generator.

    def begin_plain(self) -> None:
        """Hold the lock for a run without hooks of its own, once all runs with hooks of other threads have ended."""
        thread = threading.get_ident()
        with self._changed:
            if thread not in self._plain_runs and thread != self._hooked_thread:
                self._wait_in_turn(lambda: self._hooked_thread is None)
            self._plain_runs[thread] = self._plain_runs.get(thread, 0) + 1

    def end_plain(self) -> None:
        """Give back what this thread's last `begin_plain` took."""
        thread = threading.get_ident()
        with self._changed:
            self._plain_runs[thread] -= 1
            if not self._plain_runs[thread]:
                del self._plain_runs[thread]
                self._changed.notify_all()

    def begin_hooked(self) -> None:
        """Hold the lock for a run with hooks, once every run of another thread has ended or stands still."""
        thread = threading.get_ident()
        with self._changed:
            if thread != self._hooked_thread:
                interrupted_depth = self._plain_runs.pop(thread, 0)
                try:
                    self._wait_in_turn(lambda: self._hooked_thread is None and not self._plain_runs)
                finally:
                    if interrupted_depth:
                        self._plain_runs[thread] = interrupted_depth
                self._hooked_thread = thread
            self._hooked_depth += 1

    def end_hooked(self) -> None:
        """Give back what the last `begin_hooked` took."""
        with self._changed:
            self._hooked_depth -= 1
            if not self._hooked_depth:
                self._hooked_thread = None
                self._changed.notify_all()

    def _wait_in_turn(self, is_free: Callable[[], bool]) -> None:
        if not self._queue and is_free():
            return
        ticket = object()
        self._queue.append(ticket)
        self._changed.notify_all()  # a plain run that stands still to ask for hooks frees the lock for others
        try:
            self._changed.wait_for(lambda: self._queue[0] is ticket and is_free())
        finally:
            self._queue.remove(ticket)
            self._changed.notify_all()


def let_compiled_calls_wait(call: Callable[..., Any]) -> None:
    """Let `torch.compile(model)` compile what is inside a model's `__call__`, but not this itself, so that it waits.

    Until a model has run with hooks there is nothing to wait for, and where nothing is compiled nothing is imported.
    """
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    if compiler is not None:
        compiler.skip_code(call.__code__)
