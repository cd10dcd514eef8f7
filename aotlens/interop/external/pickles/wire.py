"""The values of a pickle as JSON: a table of objects, each once, that name each other by their places in it.

A plain value stands for itself; `["r", place]` is an object of the table, `["f", text]` a number that JSON has not,
`["i", hexadecimal]` a whole number beyond 64 bits, `["b", text]` bytes. The table's rows:

    ["d", [[key, value], …]]                        a dictionary
    ["l" | "t" | "s" | "z", [value, …]]             a list, tuple, set or frozen set
    ["o", module, name, state, entries]             a stand-in
    ["c", module, name]                             a class
    ["x", kind, numel, offset, sizes, strides, start, bytes]    a tensor, by its storage's place in the file
    ["u"]                                           something to call
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable
from typing import Any

from .interpreter import DTYPES, Refused, StandIn, StoredTensor, stand_in_class
from .layout import Places

_LONGEST_INT = 2**256
_MOST_DIMENSIONS = 64
#: Rows of the table, which whoever asked makes without a limit of memory: 300,000 take it 180 MB at most.
_MOST_OBJECTS = 300_000
_KINDS: dict[type, str] = {list: "l", tuple: "t", set: "s", frozenset: "z"}


def encode(root: Any, place: Places) -> dict[str, Any]:
    """Encode a value and all that it holds. Raises `Refused` for too many objects, and for a tensor of sizes that are
    none."""
    table: list[Any] = []
    places: dict[int, int] = {}
    objects: list[Any] = []  # so that no two objects have one id
    pending: list[tuple[int, Any]] = []

    def value(part: Any) -> Any:
        if part is None or isinstance(part, bool | str):
            return part
        if isinstance(part, int):
            if abs(part) > _LONGEST_INT:
                raise Refused("it holds a whole number of more than 256 bits")
            return part if abs(part) < 2**63 else ["i", hex(part)]
        if isinstance(part, float):
            return part if math.isfinite(part) else ["f", str(part)]
        if isinstance(part, bytes | bytearray):
            return ["b", bytes(part).decode("latin1")]
        if id(part) not in places:
            if len(table) >= _MOST_OBJECTS:
                raise Refused(f"it holds more than {_MOST_OBJECTS:,} objects")
            places[id(part)] = len(table)
            objects.append(part)
            table.append(None)
            pending.append((places[id(part)], part))
        return ["r", places[id(part)]]

    first = value(root)
    while pending:
        index, part = pending.pop()
        if isinstance(part, dict):
            table[index] = ["d", [[value(key), value(item)] for key, item in part.items()]]
        elif type(part) in _KINDS:
            table[index] = [_KINDS[type(part)], [value(item) for item in part]]
        elif isinstance(part, StoredTensor):
            table[index] = _tensor(part, place)
        elif isinstance(part, StandIn):
            kind = type(part)
            table[index] = ["o", kind.__module__, kind.__qualname__, value(part.state), value(part.entries)]
        elif isinstance(part, type):
            table[index] = ["c", part.__module__, part.__qualname__]
        else:
            table[index] = ["u"]
    return {"root": first, "table": table}


def _tensor(stored: StoredTensor, place: Places) -> list[Any]:
    sizes, strides, (offset,) = _naturals(stored.size), _naturals(stored.stride), _naturals((stored.offset,))
    if len(sizes) != len(strides):
        raise Refused(f"it makes a tensor of {len(sizes)} sizes and {len(strides)} strides")
    numel, last = 1, offset
    for size, stride in zip(sizes, strides, strict=True):
        numel, last = numel * size, last + max(size - 1, 0) * stride
    if numel > stored.numel or (numel and last >= stored.numel):
        raise Refused(f"it makes a tensor {list(sizes)} of a storage of {stored.numel} numbers")
    start, length = place(stored.key)
    n_bytes = stored.numel * DTYPES[stored.kind][1]
    if length != n_bytes:
        raise Refused(f"it says {n_bytes} bytes of a storage that has {length}")
    return ["x", stored.kind, stored.numel, offset, list(sizes), list(strides), start, n_bytes]


def _naturals(values: Any) -> tuple[int, ...]:
    fits = isinstance(values, tuple) and len(values) <= _MOST_DIMENSIONS
    if not fits or any(type(value) is not int or not 0 <= value < 2**63 for value in values):
        raise Refused(f"it makes a tensor of sizes {reprlib.repr(values)}")
    return tuple(values)


def decode(answer: dict[str, Any], tensor: Callable[..., Any]) -> Any:
    """Return the value that was encoded; `tensor(kind, numel, offset, sizes, strides, start, n_bytes)` makes each
    tensor."""
    table: list[Any] = answer["table"]
    objects: dict[int, Any] = {}
    classes: dict[tuple[str, str], Any] = {}
    readers: dict[str, Callable[[Any], Any]] = {
        "r": objects.__getitem__, "f": float, "i": lambda text: int(text, 16), "b": lambda text: text.encode("latin1"),
    }  # fmt: skip

    def value(part: Any) -> Any:
        return readers[part[0]](part[1]) if isinstance(part, list) else part

    def class_of(module: str, name: str) -> Any:  # a class takes a kilobyte: one for all of its objects
        if (module, name) not in classes:
            classes[module, name] = stand_in_class(module, name)
        return classes[module, name]

    for index, (kind, *rest) in enumerate(table):
        if kind == "x":
            objects[index] = tensor(*rest)
        elif kind in "dl":
            objects[index] = {} if kind == "d" else []
        elif kind in "ocu":
            stand_in = class_of(*rest[:2]) if rest else StandIn
            objects[index] = stand_in if kind == "c" else StandIn.__new__(stand_in)
    for index, (kind, *_) in enumerate(table):
        if kind in "tsz" and index not in objects:
            _freeze(table, index, objects, value)
    for index, (kind, *rest) in enumerate(table):
        if kind == "d":
            objects[index].update((value(key), value(item)) for key, item in rest[0])
        elif kind == "l":
            objects[index].extend(map(value, rest[0]))
        elif kind == "o":
            objects[index].__setstate__(value(rest[2]))
            object.__setattr__(objects[index], "entries", value(rest[3]))
    return value(answer["root"])


def _freeze(table: list[Any], index: int, objects: dict[int, Any], value: Callable[[Any], Any]) -> None:
    """Make a tuple or a set, those that it holds first, in a time that grows as what they hold, however deep."""
    waiting, begun = [index], set()
    while waiting:
        index = waiting[-1]
        kind, parts = table[index]
        held = [part[1] for part in parts if isinstance(part, list) and part[0] == "r" and part[1] not in objects]
        if held and index in begun:
            raise ValueError("tuples that hold each other")
        begun.add(index)
        if not held and index not in objects:
            objects[index] = {"t": tuple, "s": set, "z": frozenset}[kind](map(value, parts))
        if not held:
            waiting.pop()
        waiting += held
