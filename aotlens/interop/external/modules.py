"""The state dict of a pickled `torch.nn.Module`, of which only a stand-in was read."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from aotlens.interop.external.pickles.interpreter import StandIn, attributes

_MAX_MODULES = 50_000  # and tensors
_MAX_DEPTH = 30
#: Letters of a tensor's name.
MAX_NAME = 1_000


def is_module(value: Any) -> bool:
    """Return whether a stand-in is one of a `torch.nn.Module`."""
    return {"_parameters", "_buffers", "_modules"} <= attributes(value).keys()


def module_state(module: StandIn) -> dict[str, Tensor]:
    """Return the state dict of a module's stand-in: parameters and the buffers that are saved, by their full names.

    Raises `ValueError` for modules that contain themselves, or each other so often that their names fill the memory.
    """
    tensors: dict[str, Tensor] = {}
    pending: list[tuple[str, Any]] = [("", module)]
    n_modules = 0
    while pending:
        prefix, part = pending.pop()
        n_modules += 1
        if n_modules > _MAX_MODULES or len(tensors) > _MAX_MODULES or prefix.count(".") > _MAX_DEPTH:
            raise ValueError(
                f"expected a model, found more than {_MAX_MODULES:,} modules or {_MAX_DEPTH} within each other: do "
                "they contain themselves?"
            )
        state = attributes(part)
        hidden = state.get("_non_persistent_buffers_set")
        for group in ("_parameters", "_buffers"):
            for name, tensor in _members(state, group, prefix):
                is_hidden = group == "_buffers" and isinstance(hidden, set | frozenset) and name in hidden
                if isinstance(tensor, Tensor) and not is_hidden:
                    tensors[f"{prefix}{name}"] = tensor
        children = _members(state, "_modules", prefix)
        pending += [(f"{prefix}{name}.", child) for name, child in children if child is not None]
    return tensors


def _members(state: dict[str, Any], group: str, prefix: str) -> list[tuple[str, Any]]:
    members = state.get(group)
    if not isinstance(members, dict):
        return []
    for name in members:
        if not isinstance(name, str) or len(prefix) + len(name) > MAX_NAME:
            raise ValueError(f"expected names of modules and tensors of up to {MAX_NAME:,} letters, found another.")
    return list(members.items())
