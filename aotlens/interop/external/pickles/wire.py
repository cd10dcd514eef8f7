"""What is needed of the value in a file, as JSON: named tensors by their places in the file, and settings.

A state dict lies at the top, under a key of `_STATES`, in a module, or is all that may be weights. Settings are
dictionaries or objects under `_CONFIGS`. Everything else of the value stays in the process that read it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from typing import Any

from .interpreter import DTYPES, Refused, Scalar, StandIn, StoredTensor, attributes, full_name
from .layout import Places, Unfit

#: The keys under which training scripts put the state dict, and those under which they put the configuration.
_STATES = ("model", "state_dict", "model_state_dict", "module", "net", "weights")
_CONFIGS = ("model_args", "cfg", "config", "hparams", "args", "hyper_parameters")
_MAX_MODULES = 50_000  # and tensors
_MAX_DEPTH = 30
#: Letters of a tensor's name.
_MAX_NAME = 1_000
_LONGEST_INT = 2**256
_MOST_DIMENSIONS = 64
#: Values in settings, which are made anew wherever they are named.
_MOST_VALUES = 300_000


def contents(value: Any, place: Places) -> dict[str, Any]:
    """Return `tensors`, by name (kind, elements of the storage, offset, sizes, strides, the storage's first byte and
    how many it has), and `configs`, by their keys.

    Raises `Unfit` for a value without named tensors, and `Refused` for tensors beyond their storages, too many
    settings, and modules that contain each other without end.
    """
    state, configs = _weights_in(value)
    if len(state) > _MAX_MODULES:
        raise Refused(f"it has more than {_MAX_MODULES:,} tensors")
    strange = next((name for name in state if not isinstance(name, str) or len(name) > _MAX_NAME), None)
    if strange is not None:
        raise Unfit(f"expected tensors by names of up to {_MAX_NAME:,} letters, found another name.")
    return {"tensors": {name: _tensor(stored, place) for name, stored in state.items()}, "configs": configs}


def plain(value: Any) -> Any:
    """Return a value with lists for tuples, text for numbers that are keys, and the names of what is no plain value.
    Raises `Refused` for more than 300,000 values, 30 levels or 256 bits."""
    left = iter(range(_MOST_VALUES))

    def part(value: Any, depth: int) -> Any:
        if next(left, None) is None or depth > _MAX_DEPTH:
            raise Refused(f"it holds settings of more than {_MOST_VALUES:,} values or {_MAX_DEPTH} levels")
        if isinstance(value, int) and abs(value) > _LONGEST_INT:
            raise Refused("it holds a whole number of more than 256 bits")
        if value is None or isinstance(value, str | int | float):
            return value
        if isinstance(value, list | tuple):
            return [part(item, depth + 1) for item in value]
        if isinstance(value, dict):
            items = value.items()
            return {str(key): part(item, depth + 1) for key, item in items if isinstance(key, str | int)}
        return f"<{_kind(value)}>"

    return part(value, 0)


def _weights_in(value: Any) -> tuple[dict[Any, StoredTensor], dict[str, Any]]:
    """The state dict in a value, and the configurations next to it."""
    state = attributes(value)
    if _is_module(value):
        return dict(_module_state(value)), _configs(state)
    if not isinstance(value, dict):
        raise Unfit(
            f"looked for named tensors, found a {_kind(value)}. Load it where it comes from and save "
            "model.state_dict()."
        )
    if _is_state(value):
        return {name: item for name, item in value.items() if isinstance(item, StoredTensor)}, {}
    inside = {name: item for name, item in value.items() if _is_state(item) or _is_module(item)}
    rivals = {name: item for name, item in value.items() if _may_be_weights(name, item)}
    key = next((name for name in (*_STATES, *(rivals if len(rivals) == 1 else ())) if name in inside), None)
    if key is None:
        entries = list({**inside, **rivals, **value}.items())[:8]
        kinds = ", ".join(f"{_label(name)}: {_kind(item)}" for name, item in entries) or "nothing"
        raise Unfit(
            f"looked for named tensors, or for them under one of {', '.join(_STATES)}; found {kinds}. Save the "
            "model.state_dict() alone."
        )
    tensors, configs = _weights_in(inside[key])
    return tensors, {**_configs(value), **configs}


def _is_module(value: Any) -> bool:
    return {"_parameters", "_buffers", "_modules"} <= attributes(value).keys()


def _is_state(value: Any) -> bool:
    """Whether a value has tensors, and numbers or None at most next to them."""
    kinds = {type(item) for item in value.values()} if isinstance(value, dict) else set()
    return StoredTensor in kinds <= {StoredTensor, int, float, bool, type(None)}


def _may_be_weights(name: Any, item: Any) -> bool:
    """Whether an entry of a file may be weights, or one of them: an array of NumPy is a stand-in here."""
    if isinstance(item, dict):
        return name not in _CONFIGS and any(isinstance(part, StoredTensor | StandIn) for part in item.values())
    return isinstance(item, StoredTensor) or _is_module(item) or (name in _STATES and isinstance(item, StandIn))


def _kind(value: Any) -> str:
    if isinstance(value, StandIn):
        return full_name(value)
    return "dict" if isinstance(value, dict) else type(value).__name__


def _label(key: Any) -> str:
    return f"{key!r:.80}" if isinstance(key, str | int) else _kind(key)  # sizes of a tensor may take memory as text


def _configs(candidates: dict[Any, Any]) -> dict[str, Any]:
    """The candidates that are dictionaries or objects, as plain values; tensors by their kind."""
    entries = {name: candidates.get(name) for name in _CONFIGS}
    values = {name: config if isinstance(config, dict) else attributes(config) for name, config in entries.items()}
    kept = str | int | float | list | tuple | dict | Scalar | None
    return {
        name: plain({
            key: item for key, item in config.items()
            if isinstance(key, str) and (isinstance(item, kept) or getattr(item, "size", None) == ())
        })
        for name, config in values.items() if config
    }  # fmt: skip


def _module_state(module: StandIn) -> Iterator[tuple[str, StoredTensor]]:
    """Yield parameters and the buffers that are saved, by their full names, as a module's state dict has them."""
    pending: list[tuple[str, Any]] = [("", module)]
    n_modules = n_tensors = 0
    while pending:
        prefix, part = pending.pop()
        n_modules += 1
        if n_modules > _MAX_MODULES or n_tensors > _MAX_MODULES or prefix.count(".") > _MAX_DEPTH:
            raise Refused(
                f"it has more than {_MAX_MODULES:,} modules or {_MAX_DEPTH} within each other: do they contain "
                "themselves?"
            )
        hidden = attributes(part).get("_non_persistent_buffers_set")
        for group in ("_parameters", "_buffers", "_modules"):
            members = attributes(part).get(group)
            for name, member in members.items() if isinstance(members, dict) else ():
                if not isinstance(name, str) or len(prefix) + len(name) > _MAX_NAME:
                    raise Refused(f"it has names of modules and tensors of more than {_MAX_NAME:,} letters")
                is_hidden = group == "_buffers" and isinstance(hidden, set | frozenset) and name in hidden
                if isinstance(member, StoredTensor) and not is_hidden:
                    n_tensors += 1
                    yield f"{prefix}{name}", member
                elif group == "_modules" and member is not None:
                    pending.append((f"{prefix}{name}.", member))


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
    return [stored.kind, stored.numel, offset, list(sizes), list(strides), start, n_bytes]


def _naturals(values: Any) -> tuple[int, ...]:
    fits = isinstance(values, tuple) and len(values) <= _MOST_DIMENSIONS
    if not fits or any(type(value) is not int or not 0 <= value < 2**63 for value in values):
        raise Refused(f"it makes a tensor of sizes {reprlib.repr(values)}")
    return tuple(values)
