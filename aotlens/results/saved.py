"""One file format for every result: safetensors with its arrays, and JSON in the header with everything else.

    scores = aotlens.heads.motif_scores(model)
    scores.save("scores.safetensors")
    aotlens.results.load("scores.safetensors")

Types are looked up among the names that packages export (`aotlens.results.exports`), contents are compared with their
hash, and arrays with the types and shapes that the result's class declares. Never pickle.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from aotlens.files import read_record, write_record
from aotlens.results.exports import storable
from aotlens.untrusted import boundary

if TYPE_CHECKING:
    from torch import Tensor

SCHEMA_VERSION = 1
_KIND = "result"
_INTEGERS = ("int8", "int16", "int32")
#: The types that `compact` makes smaller.
_WIDE = ("float64", "int64")

Kind = TypeVar("Kind")


def save(result: Any, path: str | Path, *, compact: bool = False) -> None:
    """Write a result to `path` (NAME.safetensors), whole or not at all; a result that is there is replaced.

    `compact` keeps float64 as float32 and integers in the smallest type that holds them; they are read as what they
    were. Raises `ValueError` for a path that holds something else or has another ending, for a result that holds what
    no file can (a model, a function), and `OSError` with the path for a full disk.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise ValueError(f"{path}: expected a name that ends in .safetensors.")
    if path.exists():
        load(path, type(result))  # never somebody else's file
    tensors: dict[str, Tensor] = {}
    about = {"schema_version": SCHEMA_VERSION, "value": to_plain(result, tensors, compact=compact)}
    write_record(path, _KIND, tensors, about)


def load(path: str | Path, kind: type[Kind] | None = None, *, what: str = "") -> Any:
    """Return the result that `save` wrote; with `kind`, one of that type. Errors call `what` was expected.

    Raises `ValueError` for a file that is missing, damaged, made by another version, or something else.
    """
    path = Path(path)
    what = what or ("a result" if kind is None else f"a result of type {kind.__name__}")
    tensors, about = read_record(path, _KIND, what, SCHEMA_VERSION, "make it")
    with boundary(path, what, "Make it again."):
        result = from_plain(about["value"], tensors)
    if not isinstance(result, object if kind is None else kind):
        raise ValueError(f"{path}: expected {what}, found one of type {type(result).__name__}.")
    return result


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────


def to_plain(value: Any, tensors: dict[str, Tensor], *, key: str = "", compact: bool = False) -> Any:
    """Return the part of a value that goes into a file's header, as JSON; its arrays are put among the `tensors`, by
    their places in it, which begin with `key`. Raises `ValueError` for what no file can hold."""
    return _plain(value, type(value).__name__, key, tensors, compact)


def _plain(value: Any, where: str, key: str, tensors: dict[str, Tensor], compact: bool) -> Any:
    import numpy as np
    from torch import Tensor

    def inner(held: Any, name: Any) -> Any:
        return _plain(held, f"{where}.{name}", f"{key}.{name}".lstrip("."), tensors, compact)

    if isinstance(value, np.generic) and not value.shape:
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, np.ndarray | Tensor):
        return _array(value, where, key or "values", tensors, compact)
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    fields = getattr(value, "_fields", None) if isinstance(value, tuple) else None
    if fields is None and dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value)]
    if fields is not None and storable(type(value).__name__) is type(value):
        version = getattr(value, "schema_version", None)
        own = {} if version is None else {"version": version}
        return {
            "type": type(value).__name__,
            **own,
            "fields": {name: inner(getattr(value, name), name) for name in fields},
        }
    if isinstance(value, Mapping):
        return {"dict": [[inner(name, "key"), inner(held, name)] for name, held in value.items()]}
    if type(value) in (tuple, list):
        listed = [inner(held, place) for place, held in enumerate(value)]
        return listed if isinstance(value, tuple) else {"list": listed}
    raise ValueError(f"{where}: a {type(value).__name__} cannot be saved; save what was computed from it.")


def _array(value: Any, where: str, key: str, tensors: dict[str, Tensor], compact: bool) -> dict[str, Any]:
    import numpy as np
    import torch

    is_tensor = isinstance(value, torch.Tensor)
    try:
        tensor = value.detach().cpu() if is_tensor else torch.from_numpy(np.ascontiguousarray(value))
    except TypeError:
        raise ValueError(f"{where}: an array of {value.dtype} cannot be saved.") from None
    plain: dict[str, Any] = {"tensor" if is_tensor else "array": key}
    if tensor.is_complex():
        plain["complex"], tensor = True, torch.view_as_real(tensor)
    if compact and (small := _smaller(tensor)).dtype != tensor.dtype:
        plain["dtype"], tensor = str(tensor.dtype).removeprefix("torch."), small
    tensors[key] = tensor.clone(memory_format=torch.contiguous_format)
    return plain


def _smaller(tensor: Tensor) -> Tensor:
    """Return the same numbers in the smallest type of integers that holds them; float64 as float32."""
    import torch

    if tensor.dtype == torch.float64:
        return tensor.float()
    if tensor.dtype == torch.int64 and tensor.numel():
        low, high = int(tensor.min()), int(tensor.max())
        for kind in (getattr(torch, name) for name in _INTEGERS):
            if torch.iinfo(kind).min <= low and high <= torch.iinfo(kind).max:
                return tensor.to(kind)
    return tensor


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────


def from_plain(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the value of which `to_plain` gave `plain` and put arrays among the `tensors`, each of which it has once.
    Raises `ValueError` and what is usual for data of another form."""
    return _value(plain, dict(tensors))


def _value(plain: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(plain, list):
        return tuple(_value(held, tensors) for held in plain)
    if not isinstance(plain, dict):
        return plain
    if "type" in plain:
        return _built(plain, tensors)
    if "tensor" in plain or "array" in plain:
        return _read(plain, tensors)
    if "list" in plain:
        return [_value(held, tensors) for held in plain["list"]]
    if "dict" in plain:
        return {_value(name, tensors): _value(held, tensors) for name, held in plain["dict"]}
    if "range" in plain:
        return range(*plain["range"])
    if not isinstance(plain["float"], str):  # `to_plain` writes those that JSON has as they are
        raise ValueError(f"{str(plain['float'])[:40]} is not nan, inf or -inf")
    return float(plain["float"])


def _built(plain: Mapping[str, Any], tensors: dict[str, Tensor]) -> Any:
    kind = storable(plain["type"]) if isinstance(plain["type"], str) else None
    if kind is None:
        raise ValueError(f"a type {plain['type']!r}, which is no result of aotlens")
    version = getattr(kind, "schema_version", None)
    if plain.get("version") != version:
        raise ValueError(f"{kind.__name__} of version {plain.get('version')}, not {version}")
    fields = {name: _value(held, tensors) for name, held in plain["fields"].items()}
    _check_arrays(kind, fields)
    return kind(**fields)


def _read(plain: Mapping[str, Any], tensors: dict[str, Tensor]) -> Any:
    import torch

    name = plain["tensor"] if "tensor" in plain else plain["array"]
    tensor = tensors.pop(name)  # a file that names one 40 times would have 40 copies of it
    if "dtype" in plain:
        if plain["dtype"] not in _WIDE:
            raise ValueError(f"{name} of type {plain['dtype']!r:.40}")
        tensor = tensor.to(getattr(torch, plain["dtype"]))
    if plain.get("complex"):
        if tensor.shape[-1:] != (2,) or tensor.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"{name} is no array of complex numbers")
        tensor = torch.view_as_complex(tensor.contiguous())
    return tensor if "tensor" in plain else tensor.numpy()


def _check_arrays(kind: type, fields: Mapping[str, Any]) -> None:
    """Raise ValueError for an array whose type or shape its field does not declare."""
    from jaxtyping import AbstractArray, jaxtyped

    try:
        hints = get_type_hints(kind)
    except NameError:  # a type that is there for checking alone
        hints = {}
    with jaxtyped("context"):
        for name, hint in hints.items():
            among = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
            arrays = [part for part in among if isinstance(part, type) and issubclass(part, AbstractArray)]
            value = fields.get(name)
            if arrays and not (value is None and type(None) in among) and not isinstance(value, tuple(arrays)):
                raise ValueError(f"{name} is not {arrays[0].__name__}")
