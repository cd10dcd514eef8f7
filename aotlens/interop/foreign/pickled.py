"""A pickled PyTorch module read without running anything of it.

A pickle is a program: it may import any name and call it. Here no name is imported. A class that the file names
becomes an inert stand-in that keeps the state which the file gives it; what the file calls must be among `_BUILDERS`,
functions of ours that make plain values, or the file is refused by that name. Tensors are kept as descriptions until
the program has ended, and are then made by our code from the bytes of the file, within its bounds.

The interpreter is Python's own in its plain form (`pickle._Unpickler`): the one in C makes room for as many memo
entries as the file asks for, so that ten bytes could take all memory.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

#: Bytes of the pickle itself, weights apart; a module of a hundred layers has less than one million.
_MAX_PICKLE_BYTES = 64_000_000

_MAX_MODULES = 50_000  # and tensors
_MAX_DEPTH = 30

_DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
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
    entries: list[Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> StandIn:
        made = object.__new__(cls)
        object.__setattr__(made, "state", {})
        object.__setattr__(made, "entries", [])
        return made

    def __setstate__(self, state: Any) -> None:
        object.__setattr__(self, "state", state)

    def __setattr__(self, name: str, value: Any) -> None:
        raise Refused(f"it sets {name} of {full_name(self)}")

    def __setitem__(self, key: Any, value: Any) -> None:
        self.entries.append((key, value))

    def append(self, item: Any) -> None:
        self.entries.append(item)


def full_name(stand_in: StandIn) -> str:
    """The name by which the file calls an object's class."""
    return f"{type(stand_in).__module__}.{type(stand_in).__qualname__}"


def attributes(value: Any) -> dict[str, Any]:
    """The attributes of a stand-in, where the file gives any."""
    state = value.state if isinstance(value, StandIn) else None
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[0], dict):
        state = state[0]  # (attributes, slots)
    return state if isinstance(state, dict) else {}


@dataclass(frozen=True)
class _Stored:
    """A tensor as the file describes it."""

    dtype: torch.dtype
    key: str
    numel: int
    offset: Any
    size: Any
    stride: Any


@dataclass(frozen=True)
class _Builder:
    """Something that a pickle may call; it holds nothing that the pickle could change."""

    make: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        return self.make(*args)

    def __setstate__(self, state: Any) -> None:
        raise Refused("it changes a function")


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> _Stored:
    if not isinstance(storage, tuple) or len(storage) != 3:
        raise Refused("it makes a tensor of what is no storage")
    dtype, key, numel = storage
    return _Stored(dtype, key, numel, offset, size, stride)


class _Ordered(dict[Any, Any]):
    """An ordered dictionary; a state dict's notes of its modules' versions (`_metadata`) are not kept."""

    def __setstate__(self, state: Any) -> None:
        """What stands beside the entries is nothing that weights need."""


#: Everything that a pickle may call, by name.
_BUILDERS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    "collections.OrderedDict": lambda *items: _Ordered(*items),
    "builtins.set": lambda items=(): set(items),
    "builtins.frozenset": lambda items=(): frozenset(items),
    "torch.Size": lambda sizes=(): tuple(sizes),
    "torch.device": lambda *names: ":".join(map(str, names)),
    "_codecs.encode": lambda text, encoding: str(text).encode("latin1") if encoding == "latin1" else b"",
    "collections.defaultdict": lambda *_: _Ordered(),
}
#: What training scripts keep beside weights: made into nothing, where other calls are refused.
_BUILDERS |= dict.fromkeys(
    (
        "functools.partial",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray.scalar",
        "numpy.dtype",
        "pathlib.Path",
        "pathlib.PosixPath",
        "pathlib._local.PosixPath",
    ),
    lambda *_: StandIn.__new__(StandIn),
)
_OLD_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}  # Python 2's names, which protocol 2 keeps


class _Unpickler(pickle._Unpickler):  # type: ignore[name-defined, misc]
    """Runs the program in a pickle with our names in place of Python's."""

    def find_class(self, module: str, name: str) -> Any:
        module = _OLD_MODULES.get(module, module)
        builder = _BUILDERS.get(f"{module}.{name}")
        if builder is not None:
            return _Builder(builder)
        return _Inert(name, (StandIn,), {"__module__": module, "__qualname__": name})

    def persistent_load(self, pid: Any) -> tuple[torch.dtype, str, int]:
        match pid:
            case ("storage", kind, str(key), _, int(numel)) if isinstance(kind, _Inert):
                dtype = _DTYPES.get(kind.__name__)
                if dtype is not None and numel >= 0:
                    return dtype, key, numel
        raise Refused(f"it names a storage {str(pid)[:80]} of a kind that is not known")


def read_pickled(path: Path) -> Any:
    """What `torch.save` wrote to `path`: plain values, tensors, and stand-ins for everything else.

    Raises `ValueError`, with the reason, for a file that is not such a zip or is damaged, whose program calls what it
    may not, or whose tensors do not lie within the file.
    """
    check_zip(path)
    try:
        with zipfile.ZipFile(path) as archive:
            program, prefix = _program(archive)
            value = _Unpickler(program, encoding="utf-8").load()
            # Mapped, not read: memory is taken for what is kept only.
            data = torch.UntypedStorage.from_file(str(path), False, path.stat().st_size)
            assert isinstance(data, torch.UntypedStorage)
            return _with_tensors(value, _Bytes(archive, prefix, data))
    except Refused as reason:
        raise ValueError(
            f"{path}: this file is a pickled program, and {reason}, which reading weights does not need; nothing of it "
            "was run. If you trust it, load it where it comes from and save model.state_dict()."
        ) from None
    except Exception as error:  # a damaged pickle raises anything
        raise ValueError(f"{path}: damaged, or no file of torch.save: {type(error).__name__} {error}.") from error


def read_plain(path: Path) -> Any:
    """What `pickle.dump` wrote to `path`, as `read_pickled`. Raises `ValueError` as that."""
    try:
        if path.stat().st_size > _MAX_PICKLE_BYTES:
            raise Refused(f"it is {path.stat().st_size / 1e6:.0f} MB long")
        return _Unpickler(io.BytesIO(path.read_bytes()), encoding="utf-8").load()
    except Refused as reason:
        raise ValueError(f"{path}: this file is a pickled program, and {reason}; nothing of it was run.") from None
    except Exception as error:  # a damaged pickle raises anything
        raise ValueError(f"{path}: damaged, or no pickle: {type(error).__name__} {error}.") from error


def check_zip(path: Path) -> None:
    """Raise `ValueError` for a zip that unpacks to more than it holds: torch.save compresses nothing."""
    if not zipfile.is_zipfile(path):
        return
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
        raise ValueError(f"{path}: a damaged zip ({error}). Fetch it again.") from error
    packed = [entry.filename for entry in entries if entry.compress_type != zipfile.ZIP_STORED]
    if packed or sum(entry.file_size for entry in entries) > path.stat().st_size:
        what = f"{packed[0]!r} is compressed" if packed else "its parts overlap"
        raise ValueError(
            f"{path}: expected what torch.save writes, which compresses nothing; here {what}, so that a small file "
            f"could "
            "fill the memory. Nothing was read."
        )


def _program(archive: zipfile.ZipFile) -> tuple[Any, str]:
    """The pickle in an archive, and the folder in which it lies."""
    names = [entry for entry in archive.infolist() if entry.filename.endswith("data.pkl")]
    if len(names) != 1 or names[0].filename.count("/") > 1:
        raise Refused(f"it holds {len(names)} programs named data.pkl, not one")
    if names[0].file_size > _MAX_PICKLE_BYTES:
        raise Refused(f"it is {names[0].file_size / 1e6:.0f} MB long")
    prefix = names[0].filename.removesuffix("data.pkl")
    if f"{prefix}byteorder" in archive.namelist() and archive.read(f"{prefix}byteorder") != b"little":
        raise Refused("its numbers are stored with the largest byte first")
    return io.BytesIO(archive.read(names[0])), prefix


@dataclass(frozen=True)
class _Bytes:
    """The bytes of an archive's storages."""

    archive: zipfile.ZipFile
    prefix: str
    data: torch.UntypedStorage

    def tensor(self, stored: _Stored) -> Tensor:
        """A view of the file. Raises `Refused` for a tensor that is larger than its storage, or reaches beyond it."""
        sizes, strides = _naturals(stored.size), _naturals(stored.stride)
        offset = _naturals((stored.offset,))[0]
        if len(sizes) != len(strides):
            raise Refused(f"it makes a tensor of {len(sizes)} sizes and {len(strides)} strides")
        numel, last = 1, offset
        for size, stride in zip(sizes, strides, strict=True):
            numel, last = numel * size, last + max(size - 1, 0) * stride
        if numel > stored.numel or (numel and last >= stored.numel):
            raise Refused(f"it makes a tensor {list(sizes)} of a storage of {stored.numel} numbers")
        entry = self.archive.getinfo(f"{self.prefix}data/{stored.key}")
        n_bytes = stored.numel * stored.dtype.itemsize
        if entry.file_size != n_bytes:
            raise Refused(f"it says {n_bytes} bytes of a storage that has {entry.file_size}")
        start = self._start(entry)
        storage = self.data[start : start + n_bytes]
        with torch.no_grad():
            return torch.empty(0, dtype=stored.dtype).set_(storage, offset, sizes, strides)  # type: ignore[call-overload]

    def _start(self, entry: zipfile.ZipInfo) -> int:
        """Where an entry's bytes begin: behind its header, its name and its padding."""
        at = entry.header_offset + 26
        lengths = bytes(self.data[at : at + 4].tolist())
        return at + 4 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")


def _naturals(values: Any) -> tuple[int, ...]:
    if not isinstance(values, tuple) or any(type(value) is not int or value < 0 for value in values):
        raise Refused(f"it makes a tensor of sizes {str(values)[:80]}")
    return values


def _with_tensors(root: Any, source: _Bytes) -> Any:
    """The value with tensors in place of their descriptions, in dictionaries, lists and states; each object once."""
    seen: set[int] = set()
    pending = [root]
    while pending:
        value = pending.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        places: Iterator[tuple[Any, Any, Any]] = iter(())
        if isinstance(value, dict):
            places = ((value, key, item) for key, item in list(value.items()))
        elif isinstance(value, list):
            places = ((value, i, item) for i, item in enumerate(value))
        elif isinstance(value, tuple):
            pending += value
        elif isinstance(value, StandIn):
            pending += [value.state, value.entries]
        for container, key, item in places:
            if isinstance(item, _Stored):
                container[key] = source.tensor(item)
            else:
                pending.append(item)
    return source.tensor(root) if isinstance(root, _Stored) else root


def is_module(value: Any) -> bool:
    """Whether a stand-in is one of a `torch.nn.Module`."""
    return {"_parameters", "_buffers", "_modules"} <= attributes(value).keys()


def module_state(module: StandIn) -> dict[str, Tensor]:
    """The state dict of a module's stand-in: parameters and the buffers that are saved, by their full names.

    Raises `ValueError` for modules that contain themselves, or each other so often that their names fill the memory.
    """
    found: dict[str, Tensor] = {}
    pending: list[tuple[str, Any]] = [("", module)]
    n_modules = 0
    while pending:
        prefix, part = pending.pop()
        n_modules += 1
        if n_modules > _MAX_MODULES or len(found) > _MAX_MODULES or prefix.count(".") > _MAX_DEPTH:
            raise ValueError(
                f"expected a model, found more than {_MAX_MODULES:,} modules or {_MAX_DEPTH} within each other: do "
                "they contain themselves?"
            )
        state = attributes(part)
        hidden = state.get("_non_persistent_buffers_set") or ()
        for group in ("_parameters", "_buffers"):
            for name, tensor in (state.get(group) or {}).items():
                if isinstance(tensor, Tensor) and not (group == "_buffers" and name in hidden):
                    found[f"{prefix}{name}"] = tensor
        for name, child in (state.get("_modules") or {}).items():
            if child is not None:
                pending.append((f"{prefix}{name}.", child))
    return found
