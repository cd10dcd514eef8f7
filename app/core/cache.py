"""The values kept between requests: within one bound in bytes for the whole app, each value made once."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, Generic, Protocol, TypeVar

from app.core.sizes import Held, held_by

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Keeper(Protocol):
    """A holder of values that count."""

    def forget(self, key: Any) -> None:
        """Drop a value. Called with the memory's lock held."""


class Memory:
    """The bytes that all caches of an app hold together: beyond `capacity`, the least recently used value of any goes.

    Caches with bounds of their own came to 1.28 GB together, and the largest of them evicted while others stood empty.
    The newest value stays, however large. A model's weights count once, for as long as any kept value refers to it.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.lock = threading.RLock()
        self._kept: OrderedDict[tuple[int, Any], tuple[Keeper, Held]] = OrderedDict()
        self._total = 0
        self._n_holders: Counter[int] = Counter()

    @property
    def n_bytes(self) -> int:
        """Return the bytes that are held now, never in the middle of a change."""
        with self.lock:
            return self._total

    def cache(
        self, most: int | None = None, cost: Callable[[Any], int] | None = None, *, grows: bool = False
    ) -> Cache[Any, Any]:
        """Return a cache within this memory; see `Cache`."""
        return Cache(self, most, cost, grows=grows)

    def count(self, keeper: Keeper, key: Any, held: Held) -> None:
        """Count a value of a keeper as the newest, and drop the least recently used ones that no longer fit."""
        with self.lock:
            self.release(keeper, key)
            self._kept[id(keeper), key] = keeper, held
            self._total += held.n_bytes
            for model, n_bytes in held.models.items():
                self._n_holders[model] += 1
                self._total += n_bytes if self._n_holders[model] == 1 else 0
            while self._total > self.capacity and len(self._kept) > 1:
                (_, oldest), (its_keeper, _) = next(iter(self._kept.items()))
                self.release(its_keeper, oldest)
                its_keeper.forget(oldest)

    def used(self, keeper: Keeper, key: Any) -> None:
        """Note that somebody has asked for a value."""
        with self.lock:
            if (id(keeper), key) in self._kept:
                self._kept.move_to_end((id(keeper), key))

    def release(self, keeper: Keeper, key: Any) -> None:
        """Count a value no more, that its keeper has dropped."""
        with self.lock:
            _, held = self._kept.pop((id(keeper), key), (keeper, Held(n_bytes=0)))
            self._total -= held.n_bytes
            for model, n_bytes in held.models.items():
                self._n_holders[model] -= 1
                if not self._n_holders[model]:
                    del self._n_holders[model]
                    self._total -= n_bytes


class Cache(Generic[Key, Value]):
    """Makes each value once, however many threads ask for it at the same time; least recently used values go first.

    At most `most` are kept, where that is given, and as many as fit into `memory` beside everything else. `cost`, in
    bytes, is measured where it is not given. A cache that `grows` has values that compute more as they are used: when
    the next one is asked for, those that were handed out are measured again.
    """

    def __init__(
        self,
        memory: Memory,
        most: int | None = None,
        cost: Callable[[Value], int] | None = None,
        *,
        grows: bool = False,
    ) -> None:
        self._memory, self._most, self._grows = memory, most, grows
        self._held: Callable[[Value], Held] = held_by if cost is None else lambda value: Held(n_bytes=cost(value))
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._making: dict[Key, Future[Value]] = {}
        self._handed_out: dict[Key, Value] = {}

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the value of `key`, from `make()` if it isn't there. A failure reaches all who wait, and
        isn't kept."""
        if self._grows:
            self._measure_again()
        with self._memory.lock:
            if key in self._values:
                return self._use(key)
            waiting = self._making.get(key)
            if waiting is None:
                mine: Future[Value] = Future()
                self._making[key] = mine
        if waiting is not None:
            return waiting.result()
        try:
            value = make()
            held = self._held(value)
        except BaseException as error:
            with self._memory.lock:
                del self._making[key]
            mine.set_exception(error)
            raise
        with self._memory.lock:
            del self._making[key]
            self._keep(key, value, held)
        mine.set_result(value)
        return value

    def known(self, key: Key) -> Value | None:
        """Return the value of `key`, if it is there."""
        with self._memory.lock:
            return self._use(key) if key in self._values else None

    def forget(self, key: Key) -> None:
        """Drop a value that no longer fits; the memory counts it no more."""
        self._values.pop(key, None)
        self._handed_out.pop(key, None)

    def __len__(self) -> int:
        return len(self._values)

    def _use(self, key: Key) -> Value:
        """A value that is there, which is the newest from now on. With the memory's lock held."""
        self._values.move_to_end(key)
        self._memory.used(self, key)
        if self._grows:
            self._handed_out[key] = self._values[key]
        return self._values[key]

    def _keep(self, key: Key, value: Value, held: Held) -> None:
        self._values[key] = value
        if self._grows:
            self._handed_out[key] = value
        self._memory.count(self, key, held)
        while self._most is not None and len(self._values) > self._most:
            oldest = next(iter(self._values))
            self.forget(oldest)
            self._memory.release(self, oldest)

    def _measure_again(self) -> None:
        with self._memory.lock:
            handed_out, self._handed_out = self._handed_out, {}
        for key, value in handed_out.items():
            held = self._held(value)
            with self._memory.lock:
                if self._values.get(key) is value:
                    self._memory.count(self, key, held)
