"""The size in bytes of a kept result, whatever it is made of."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

#: The types of objects that results refer to and do not hold.
_CODE = (type, ModuleType, FunctionType, MethodType, BuiltinFunctionType)


@dataclass(frozen=True, kw_only=True)
class Held:
    """The memory that a value keeps."""

    n_bytes: int
    """The bytes of its own arrays, tables, texts and containers."""
    models: Mapping[int, int] = field(default_factory=dict)
    """Bytes of the weights of each PyTorch module that it refers to, by the module's `id`: others may hold it too."""


def held_by(value: Any) -> Held:
    """Return the arrays, tables, texts and containers that a value holds, each once, and the models.

    An array that is a view counts as what it is a view of, since that stays in memory with it. What native code keeps
    beside that, such as a tokenizer's vocabulary, is not seen.
    """
    total = 0
    models: dict[int, int] = {}
    waiting, seen = [value], set[Any]()
    while waiting:
        part = waiting.pop()
        if part is None or isinstance(part, _CODE) or id(part) in seen:
            continue
        seen.add(id(part))
        measure = _measure_of(type(part))
        if measure is _weights:
            models[id(part)] = _weights(part, seen)
        elif measure is not None:
            total += measure(part, seen)
        else:
            total += sys.getsizeof(part)
            waiting.extend(_parts(part))
    return Held(n_bytes=total, models=models)


def size_of(value: Any) -> int:
    """Return the bytes that a value holds, its models' weights among them."""
    held = held_by(value)
    return held.n_bytes + sum(held.models.values())


def _parts(part: Any) -> Iterator[Any]:
    """Yield what a container contains, or what the attributes of an object are."""
    if isinstance(part, dict):
        yield from list(part.keys())
        yield from list(part.values())
    elif isinstance(part, list | tuple | set | frozenset):
        yield from list(part)
    else:
        yield from list(getattr(part, "__dict__", {}).values())
        for kind in type(part).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__"):
                    yield getattr(part, name, None)


def _weights(model: Any, seen: set[Any]) -> int:
    return sum(_tensor(tensor, seen) for tensor in (*model.parameters(), *model.buffers()))


def _array(array: Any, seen: set[Any]) -> int:
    while isinstance(array.base, type(array)):
        array = array.base
    return _once(("array", array.__array_interface__["data"][0]), array.nbytes, seen)


def _tensor(tensor: Any, seen: set[Any]) -> int:
    storage = tensor.untyped_storage()
    return _once(("tensor", storage.data_ptr()), storage.nbytes(), seen)


def _once(place: tuple[str, int], n_bytes: int, seen: set[Any]) -> int:
    """The bytes at a place in memory, which several arrays may share."""
    if place in seen:
        return 0
    seen.add(place)
    return n_bytes


def _nothing(part: Any, seen: set[Any]) -> int:
    return 0


def _is(module: str, name: str) -> Callable[[type], bool]:
    """Return a check for classes of a package, or made from one; where nobody has imported the package, none is."""

    def check(kind: type) -> bool:
        package = sys.modules.get(module)
        return package is not None and issubclass(kind, getattr(package, name))

    return check


_MEASURES: tuple[tuple[Callable[[type], bool], Callable[[Any, set[Any]], int]], ...] = (
    (_is("numpy", "ndarray"), _array),
    (_is("torch.nn", "Module"), _weights),
    (_is("torch", "Tensor"), _tensor),
    (_is("pandas", "DataFrame"), lambda part, seen: int(part.memory_usage(deep=True).sum())),
    (_is("pandas", "Series"), lambda part, seen: int(part.memory_usage(deep=True))),
    (_is("app.core.cache", "Memory"), _nothing),
    (_is("app.core.cache", "Cache"), _nothing),
)


@lru_cache(1024)
def _measure_of(kind: type) -> Callable[[Any, set[Any]], int] | None:
    """Return the function that measures the values of a class; None for those whose parts are measured."""
    return next((measure for is_kind, measure in _MEASURES if is_kind(kind)), None)
