"""A bounded cache that makes each value once, however many threads ask for it at the same time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Cache(Generic[Key, Value]):
    """Least recently used values go when the total cost exceeds `capacity`; the newest always stays."""

    def __init__(self, capacity: float, cost: Callable[[Value], float] = lambda _: 1.0) -> None:
        self._capacity = capacity
        self._cost = cost
        self._values: OrderedDict[Key, tuple[Value, float]] = OrderedDict()
        self._total = 0.0
        self._making: dict[Key, Future[Value]] = {}
        self._lock = threading.Lock()

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of `key`, from `make()` if it isn't there. A failure reaches all who wait, and isn't kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]
            waiting = self._making.get(key)
            if waiting is None:
                mine: Future[Value] = Future()
                self._making[key] = mine
        if waiting is not None:
            return waiting.result()
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                del self._making[key]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._making[key]
            self._keep(key, value)
        mine.set_result(value)
        return value

    def known(self, key: Key) -> Value | None:
        """The value of `key`, if it is there."""
        with self._lock:
            return self._values[key][0] if key in self._values else None

    def __len__(self) -> int:
        return len(self._values)

    def _keep(self, key: Key, value: Value) -> None:
        cost = self._cost(value)
        self._values[key] = (value, cost)
        self._total += cost
        while self._total > self._capacity and len(self._values) > 1:
            _, (_, freed) = self._values.popitem(last=False)
            self._total -= freed
