"""The interpreter of pickles: what a program in a file makes, without running anything of it.

A pickle is a program: it may import any name and call it. Here no name is imported. A class that the file names
becomes an inert stand-in that keeps the state which the file gives it; what the file calls must be among `_BUILDERS`,
functions of ours that make plain values, or the file is refused by that name. Tensors are kept as descriptions until
the program has ended (`archive.py` makes them). Nothing here imports PyTorch: the program is run by a process of its
own (`child.py`), which begins in a few hundredths of a second and has little memory.

The interpreter is Python's own in its plain form (`pickle._Unpickler`): the one in C makes room for as many memo
entries as the file asks for, so that ten bytes could take all memory. A byte of a program may make an object of two
hundred bytes, a call may copy what it is given a thousand times over, and a tuple of tuples takes a time that doubles
with each level to hash. So the length of a program, the number of its instructions and the bytes that its calls make
are bounded, and a key is a plain value or a short tuple of such.
"""

from __future__ import annotations

import pickle
import reprlib
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

#: Bytes of the pickle itself, weights apart; a module of a hundred layers has less than one million, and one that
#: keeps its tokenizer some four.
MAX_PROGRAM_BYTES = 16_000_000

_MAX_INSTRUCTIONS = 1_500_000
#: Bytes that calls make, in texts and in containers.
_MAX_MADE = 32_000_000
_MAX_CLASSES = 10_000
_MAX_KEY_PARTS = 100
_MAX_DEVICE = 100

#: The type of a storage's numbers, as PyTorch names it, and the bytes of one.
DTYPES = {
    "DoubleStorage": ("float64", 8),
    "FloatStorage": ("float32", 4),
    "HalfStorage": ("float16", 2),
    "BFloat16Storage": ("bfloat16", 2),
    "LongStorage": ("int64", 8),
    "IntStorage": ("int32", 4),
    "ShortStorage": ("int16", 2),
    "CharStorage": ("int8", 1),
    "ByteStorage": ("uint8", 1),
    "BoolStorage": ("bool", 1),
}


class Refused(Exception):
    """The program in a pickle asks for what reading weights does not need."""


class _Inert(type):
    """The class of stand-ins: calling one is what a pickle may not do."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise Refused(f"it calls {cls.__module__}.{cls.__qualname__}")


class StandIn(metaclass=_Inert):
    """An object whose class the file names: its state, without any of its behaviour."""

    state: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> StandIn:
        stand_in = object.__new__(cls)
        object.__setattr__(stand_in, "state", {})
        return stand_in

    def __setstate__(self, state: Any) -> None:
        object.__setattr__(self, "state", state)

    def __setattr__(self, name: str, value: Any) -> None:
        raise Refused(f"it sets {name} of {full_name(self)}")

    def __setitem__(self, key: Any, value: Any) -> None:
        """Keep nothing of what an object contains."""

    def append(self, item: Any) -> None:
        """Keep nothing of what an object contains."""


def full_name(stand_in: StandIn) -> str:
    """Return the name by which the file calls an object's class."""
    return f"{type(stand_in).__module__}.{type(stand_in).__qualname__}"


def attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of a stand-in, where the file gives any."""
    state = value.state if isinstance(value, StandIn) else None
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[0], dict):
        state = state[0]  # (attributes, slots)
    return state if isinstance(state, dict) else {}


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor as the file describes it: nothing here has been checked. As a key it is itself, whatever it holds."""

    kind: str
    """The kind of the storage, of `DTYPES`."""
    key: str
    numel: int
    offset: Any
    size: Any
    stride: Any

    def __setstate__(self, state: Any) -> None:
        raise Refused("it changes a tensor")


@dataclass(frozen=True)
class Builder:
    """Something that a pickle may call; it holds nothing that the pickle could change."""

    make: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        return self.make(*args)

    def __setstate__(self, state: Any) -> None:
        raise Refused("it changes a function")


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *more: Any) -> StoredTensor:
    if any(more[2:]):  # after requires_grad and hooks
        raise Refused(f"it marks a tensor with {reprlib.repr(more[2])} (save its tensor.resolve_neg() instead)")
    if not isinstance(storage, tuple) or len(storage) != 3:
        raise Refused("it makes a tensor of what is no storage")
    return StoredTensor(*storage, offset, size, stride)


class _Ordered(dict[Any, Any]):
    """An ordered dictionary; a state dict's notes of its modules' versions (`_metadata`) are not kept."""

    def __setstate__(self, state: Any) -> None:
        """Ignore everything but the entries: it is nothing that weights need."""


def _ordered(items: Any = ()) -> _Ordered:
    return _Ordered((_key(key), value) for key, value in items)


def _key(value: Any) -> Any:
    """A key or a member of a set: a plain value or a short tuple. Others are slow to hash: raises `Refused`."""
    if isinstance(value, tuple):
        if len(value) > _MAX_KEY_PARTS:
            raise Refused(f"it has a key of more than {_MAX_KEY_PARTS} parts")
        if not all(isinstance(part, _PLAIN) for part in value):
            raise Refused("it has a key of more than plain values")
    elif not isinstance(value, (*_PLAIN, StandIn, _Inert, StoredTensor)):
        raise Refused(f"it has a key that is a {type(value).__name__}")
    return value


_PLAIN = (str, int, float, bytes, type(None))


def _plain_name(*names: Any) -> str:
    parts = [name for name in names if isinstance(name, str | int)]
    if len(parts) < len(names) or any(isinstance(name, str) and len(name) > _MAX_DEVICE for name in parts):
        raise Refused("it names a device by what is no name")
    return ":".join("…" if isinstance(name, int) and abs(name) > 2**63 else str(name) for name in parts)[:_MAX_DEVICE]


def _latin1(text: Any, encoding: Any) -> bytes:
    return text.encode("latin1") if isinstance(text, str) and encoding == "latin1" else b""


#: NumPy's dtypes of a number, as classes of stand-ins and as formats of `struct`.
_CODES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1")
_NUMBERS = dict(zip(_CODES, "efdbhiqBHIQ?", strict=True))
_DTYPES: dict[str, Any] = {code: _Inert(code, (StandIn,), {}) for code in _NUMBERS}


class Scalar(StandIn):
    """A scalar of NumPy that is no number, or whose bytes have another order."""

    __module__ = "numpy"


def _scalar(dtype: Any, data: Any) -> Any:
    match dtype:
        case StandIn(state=(_, "<" | "|", *_)) if type(dtype).__name__ in _NUMBERS:
            return struct.unpack("<" + _NUMBERS[type(dtype).__name__], data)[0]
    return StandIn.__new__(Scalar)


#: Everything that a pickle may call, by name.
_BUILDERS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    "collections.OrderedDict": _ordered,
    "builtins.set": lambda items=(): set(map(_key, items)),
    "builtins.frozenset": lambda items=(): frozenset(map(_key, items)),
    "torch.Size": lambda sizes=(): tuple(sizes),
    "torch.device": _plain_name,
    "_codecs.encode": _latin1,
    "collections.defaultdict": lambda *_: _Ordered(),
    "numpy.dtype": lambda code, *_: StandIn.__new__(_DTYPES.get(_key(code), StandIn)),
    **dict.fromkeys(("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar"), _scalar),
}
#: The objects that training scripts keep beside weights: made into nothing, where other calls are refused.
_BESIDE = {
    "builtins": ("complex", "range", "slice"),
    "collections": ("Counter", "deque"),
    "datetime": ("date", "datetime", "timedelta"),
    "functools": ("partial",),
    **dict.fromkeys(("numpy.core.multiarray", "numpy._core.multiarray"), ("_reconstruct",)),
    **dict.fromkeys(("pathlib", "pathlib._local"), ("Path", "PosixPath", "WindowsPath")),
}
for _module, _names in _BESIDE.items():
    _BUILDERS |= {f"{_module}.{name}": lambda *_: StandIn.__new__(StandIn) for name in _names}
_OLD_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}  # Python 2's names, which protocol 2 keeps


class _Instructions(dict[int, Callable[[Any], None]]):
    """The handlers by instruction, until a program has had too many of them."""

    left = _MAX_INSTRUCTIONS

    def __getitem__(self, code: int) -> Callable[[Any], None]:
        self.left -= 1
        if self.left < 0:
            raise Refused(f"it has more than {_MAX_INSTRUCTIONS:,} instructions")
        if code not in self:
            raise Refused(f"it has the instruction {bytes([code])!r}")
        return super().__getitem__(code)


#: Memory of a size that a file names, names by number, and buffers from elsewhere.
_NOT_NEEDED = frozenset(
    code[0]
    for code in (pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER, pickle.EXT1, pickle.EXT2, pickle.EXT4)
)


@runtime_checkable
class Readable(Protocol):
    """The stream that a program is read from."""

    def read(self, n: int, /) -> bytes: ...

    def readline(self) -> bytes: ...


class Unpickler(pickle._Unpickler):  # type: ignore[name-defined, misc]
    """Runs the program in a pickle with our names in place of Python's."""

    # Attributes of Python's own unpickler, whose types are not published.
    stack: list[Any]
    append: Any
    pop_mark: Any

    def __init__(self, file: Readable) -> None:
        super().__init__(file, encoding="utf-8")
        known = pickle._Unpickler.dispatch | self._OURS  # type: ignore[attr-defined]
        allowed = {code: load for code, load in known.items() if code not in _NOT_NEEDED}
        self.dispatch = _Instructions(allowed)  # type: ignore[misc]
        self._classes: dict[tuple[str, str], _Inert] = {}
        self._made = 0
        self.kinds: dict[str, str] = {}
        """The kind of every storage that the program names, by its key."""

    def find_class(self, module: str, name: str) -> Any:
        module = _OLD_MODULES.get(module, module)
        builder = _BUILDERS.get(f"{module}.{name}")
        if builder is not None:
            return Builder(builder)
        if (module, name) not in self._classes:
            if len(self._classes) >= _MAX_CLASSES:
                raise Refused(f"it names more than {_MAX_CLASSES:,} classes")
            names = {"__module__": module, "__qualname__": name}
            self._classes[module, name] = _Inert(name, (StandIn,), names)
        return self._classes[module, name]

    def persistent_load(self, pid: Any) -> Any:
        match pid:
            case ("storage", kind, str(key), _, int(numel), *more) if isinstance(kind, _Inert) and more in ([], [None]):
                if kind.__name__ in DTYPES and 0 <= numel < 2**63:
                    self.kinds[key] = kind.__name__
                    return kind.__name__, key, numel
            case ("module", _Inert() as kind, *_):  # before PyTorch 1.6 a class came with its source, which is not read
                return kind
        raise Refused(f"it names a storage {reprlib.repr(pid)} of a kind that is not known")

    def _load_reduce(self) -> None:
        arguments = self.stack.pop()
        value = self.stack[-1] = self.stack[-1](*arguments)
        item_bytes = 1 if isinstance(value, str | bytes) else 16
        self._made += item_bytes * len(value) if isinstance(value, str | bytes | tuple | set | frozenset | dict) else 0
        if self._made > _MAX_MADE:
            raise Refused(f"its calls make more than {_MAX_MADE:,} bytes")

    def _load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-1][_key(key)] = value

    def _load_setitems(self) -> None:
        items = self.pop_mark()
        for key, value in zip(items[::2], items[1::2], strict=True):
            self.stack[-1][_key(key)] = value

    def _load_dict(self) -> None:
        items = self.pop_mark()
        self.append({_key(key): value for key, value in zip(items[::2], items[1::2], strict=True)})

    def _load_additems(self) -> None:
        members = self.pop_mark()
        self.stack[-1].update(map(_key, members))

    def _load_frozenset(self) -> None:
        self.append(frozenset(map(_key, self.pop_mark())))

    _OURS = {  # noqa: RUF012 (never changed)
        pickle.REDUCE[0]: _load_reduce,
        pickle.SETITEM[0]: _load_setitem,
        pickle.SETITEMS[0]: _load_setitems,
        pickle.DICT[0]: _load_dict,
        pickle.ADDITEMS[0]: _load_additems,
        pickle.FROZENSET[0]: _load_frozenset,
    }
