"""Threads that share a model: plain forward passes run side by side, a run with hooks runs alone.

Hooks are state of the model, so hooks that one thread puts on for a run are called by every forward pass that
another thread makes meanwhile: its cache and its logits would be wrong, silently.
"""

from __future__ import annotations

import copy
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformer_lens.HookedRootModule import HookedRootModule


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


class ThreadSafeHooks(HookedRootModule):
    """A `HookedRootModule` that several threads may use at once.

    `run_with_cache`, `run_with_hooks` and the `hooks()` context have the model to themselves: a call of the model in
    another thread waits until they end, and they wait until calls in progress have ended. Calls wait for nothing
    else. Within one thread nothing waits.

    A hook, or the body of `with model.hooks(…)`, must not wait for another thread that uses the model: neither would
    ever go on. Hooks left by `add_hook`, or with `reset_hooks_end=False`, apply to the calls of every thread, as in
    TransformerLens. A function compiled around the model calls it without waiting; `model.compile()` and
    `torch.compile(model)` wait.
    """

    def __init__(self) -> None:
        super().__init__()
        self._run_lock = RunLock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # a lock cannot be traced, and would break the graph around the model
            return super().__call__(*args, **kwargs)
        self._run_lock.begin_plain()
        try:
            return super().__call__(*args, **kwargs)
        finally:
            self._run_lock.end_plain()

    @contextmanager
    def hooks(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """TransformerLens's context of temporary hooks; calls of the model in other threads wait until it ends."""
        _run_calls_uncompiled()
        self._run_lock.begin_hooked()
        try:
            with super().hooks(*args, **kwargs) as hooked_model:
                yield hooked_model
        finally:
            self._run_lock.end_hooked()

    def run_with_hooks(
        self,
        *model_args: Any,
        fwd_hooks: Sequence[Any] = (),
        bwd_hooks: Sequence[Any] = (),
        reset_hooks_end: bool = True,
        clear_contexts: bool = False,
        **model_kwargs: Any,
    ) -> Any:
        """TransformerLens's, by a call of the model: it calls `forward`, past what is registered for calls.

        `aotlens.heads.without` is, so that without this every measurement through hooks would fail inside it.
        """
        if bwd_hooks and reset_hooks_end:
            logging.warning(
                "run_with_hooks: backward hooks are gone before a backward pass; set reset_hooks_end=False."
            )
        with self.hooks(list(fwd_hooks), list(bwd_hooks), reset_hooks_end, clear_contexts) as hooked_model:
            return hooked_model(*model_args, **model_kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        duplicate = memo[id(self)] = type(self).__new__(type(self))
        self._run_lock.begin_plain()  # or the copy would keep the hooks of another thread's run
        try:
            duplicate.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        finally:
            self._run_lock.end_plain()
        return duplicate


def _run_calls_uncompiled() -> None:
    """Let `torch.compile(model)` compile what is inside `__call__` but not `__call__` itself, so that it waits.

    Until a model has run with hooks there is nothing to wait for, and where nothing is compiled nothing is imported.
    """
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    if compiler is not None:
        compiler.skip_code(ThreadSafeHooks.__call__.__code__)
