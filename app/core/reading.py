"""Reading from drives that may stop answering: whoever waits is told, and no more threads are lost to them than one.

Nothing can end a read of a drive that is gone. So each file is read in a thread of its own; requests wait for it for a
while, and whoever asks later, before it has come back, is told at once. What comes in the end is kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from app.core.errors import RequestError

Value = TypeVar("Value")


class Silent(RequestError):
    """A drive has not answered in time."""


@dataclass(frozen=True)
class _Read:
    answer: Future[Any]
    deadline: float


class Reading:
    """The reads under way, by name."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._under_way: dict[tuple[str, str], _Read] = {}
        self._lock = threading.Lock()

    def wait(self, name: str, part: str, read: Callable[[], Value]) -> Value:
        """Return what `read` gives, of a part of what is called `name`. Raises Silent where it takes too long."""
        key = name, part
        with self._lock:
            waited_for = self._under_way.get(key)
            if waited_for is None:
                waited_for = self._under_way[key] = _Read(Future(), time.monotonic() + self._seconds)
                ask = threading.Thread(
                    target=self._ask, args=(key, waited_for.answer, read), name=f"reading {name}", daemon=True
                )
                ask.start()
        try:
            return waited_for.answer.result(max(waited_for.deadline - time.monotonic(), 0))
        except TimeoutError:
            if waited_for.answer.done():  # the system's own, of a drive that says so
                raise
            raise Silent(self.problem(name)) from None

    def is_silent(self, name: str) -> bool:
        """Return whether somebody has waited in vain for a part of it, which has not come since."""
        now = time.monotonic()
        with self._lock:
            return any(of == name and now > read.deadline for (of, _), read in self._under_way.items())

    def problem(self, name: str) -> str:
        """Write the message about a name that is silent."""
        return (
            f"{name}: its files did not come within {self._seconds:g} seconds. Is its drive still there? They "
            "are waited for; when they come, it opens."
        )

    def _ask(self, key: tuple[str, str], answer: Future[Any], read: Callable[[], Any]) -> None:
        try:
            value = read()
        except BaseException as error:
            self._forget(key)
            answer.set_exception(error)
        else:
            self._forget(key)
            answer.set_result(value)

    def _forget(self, key: tuple[str, str]) -> None:
        with self._lock:
            del self._under_way[key]
