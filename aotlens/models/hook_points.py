"""Hook points, and the hooks of the current call.

Hooks of `add_hook` are state of the point: the calls of every thread run them until they are removed. Hooks with a
level belong to a call, and stand in a context variable, which each thread (and each task of asyncio) has for itself.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils.hooks import BackwardHook

from aotlens.conventions import require_choice
from aotlens.models.cache import HookFunction

Direction: TypeAlias = Literal["fwd", "bwd"]
Directions: TypeAlias = Literal["fwd", "bwd", "both"]


@dataclass(kw_only=True, eq=False)
class LensHandle:
    """A hook on a hook point, and what `reset_hooks` needs to know. `handle.hook.remove()` removes it."""

    user_hook: HookFunction
    dir: Direction
    is_permanent: bool
    context_level: int | None
    order: int
    """Hooks of a point run in ascending order: of arrival, or its negative for those that were prepended."""
    removed: bool = False

    @property
    def hook(self) -> LensHandle:
        """The handle itself: TransformerLens has PyTorch's handle here."""
        return self

    def remove(self) -> None:
        """Remove the hook."""
        self.removed = True

    def __deepcopy__(self, memo: dict[int, Any]) -> LensHandle:
        return copy.copy(self)  # a copied model calls the same function


@dataclass(kw_only=True, eq=False)
class Context:
    """An open `hooks()` of a model, which its hook points identify: a shallow copy has the same."""

    hook_dict: dict[str, HookPoint]
    before_call: Callable[..., None] | None
    handles: list[LensHandle] = field(default_factory=list)
    is_open: bool = True


#: The hooks that belong to the current call, the contexts that are open around it, and what hooks keep in `ctx`.
HOOKS: ContextVar[Mapping[HookPoint, tuple[LensHandle, ...]]] = ContextVar("hooks", default={})  # noqa: B039
CONTEXTS: ContextVar[tuple[Context, ...]] = ContextVar("contexts", default=())
_KEPT: ContextVar[WeakKeyDictionary[HookPoint, dict[Any, Any]]] = ContextVar("kept")
_ARRIVALS = itertools.count(1)
LOCK = threading.Lock()  # over what a model itself keeps: the hooks of add_hook, and the number of open contexts


def _kept() -> WeakKeyDictionary[HookPoint, dict[Any, Any]]:
    if (kept := _KEPT.get(None)) is None:
        _KEPT.set(kept := WeakKeyDictionary())
    return kept


def _in_order(handles: Iterable[LensHandle]) -> tuple[LensHandle, ...]:
    """Return the hooks that were not removed, in the order in which they run."""
    return tuple(sorted((handle for handle in handles if not handle.removed), key=lambda handle: handle.order))


def set_hooks(added: Iterable[tuple[HookPoint, LensHandle]] = ()) -> None:
    """Add hooks to the current call, and forget those that were removed."""
    hooks = {point: list(handles) for point, handles in HOOKS.get().items()}
    for point, handle in added:
        hooks.setdefault(point, []).append(handle)
    HOOKS.set({point: ordered for point, handles in hooks.items() if (ordered := _in_order(handles))})


def bound_to_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` with the hooks of the current call, whenever and in whichever thread it runs.

    Autograd computes a block again, and calls backward hooks, when the call has ended, and on a GPU in its own thread.
    """
    if torch.compiler.is_compiling():
        return function
    hooks = {point: tuple(map(copy.copy, _in_order(handles))) for point, handles in HOOKS.get().items()}
    kept = _kept()

    def run(*args: Any, **kwargs: Any) -> Any:
        of_hooks, of_kept = HOOKS.set(hooks), _KEPT.set(kept)
        try:
            return function(*args, **kwargs)
        finally:
            HOOKS.reset(of_hooks)
            _KEPT.reset(of_kept)

    return run


class HookPoint(nn.Module):
    """The identity, where hooks can be put on. The root module's `setup` gives it its `name`."""

    def __init__(self) -> None:
        super().__init__()
        self.name: str | None = None
        self._own: tuple[LensHandle, ...] = ()  # the hooks of the model, in order

    def forward(self, x: Tensor) -> Tensor:
        handles = self.here()
        return _run_hooks(self, x, handles) if handles else x

    def here(self) -> tuple[LensHandle, ...]:
        """The hooks of the model and of the current call, in the order in which they run."""
        if torch.compiler.is_compiling():  # `HookedRootModule.__call__` runs hooks of a call uncompiled
            return self._own
        called = HOOKS.get().get(self)
        return self._own if called is None else _in_order((*self._own, *called))

    @property
    def fwd_hooks(self) -> list[LensHandle]:
        """The hooks of activations that a call would run here and now."""
        return self._handles("fwd", True, None)

    @property
    def bwd_hooks(self) -> list[LensHandle]:
        """The hooks of gradients that a call would run here and now."""
        return self._handles("bwd", True, None)

    @property
    def ctx(self) -> dict[Any, Any]:
        """What hooks keep between the calls of one thread; `reset_hooks` empties it."""
        return _kept().setdefault(self, {})

    @ctx.setter
    def ctx(self, kept: dict[Any, Any]) -> None:
        _kept()[self] = kept

    def layer(self) -> int:
        """Return the layer of a hook point in a block: 3 for `blocks.3.attn.hook_z`."""
        layer = str(self.name).partition(".")[2].partition(".")[0]
        if not layer.isdecimal():
            raise ValueError(f"layer: expected a hook point named blocks.LAYER.…, got {self.name!r}.")
        return int(layer)

    def add_hook(
        self,
        hook: HookFunction,
        dir: Direction = "fwd",
        is_permanent: bool = False,
        level: int | None = None,
        prepend: bool = False,
    ) -> LensHandle:
        """Call `hook(tensor, hook=point)` with every activation, or with every gradient (`dir="bwd"`).

        Hooks run in the order in which they came, each on what the one before it returned; `prepend` puts this one
        before those that are there. A hook with a `level` belongs, as those of a context do, to the calls of this
        thread, unless it is permanent. Raises `ValueError` for a hook that is not callable and an unknown `dir`.
        """
        handle = self.handle(hook, dir, is_permanent, level, prepend)
        if level is None or is_permanent:
            with LOCK:
                self._own = _in_order((*self._own, handle))
        else:
            set_hooks([(self, handle)])
        return handle

    def handle(
        self, hook: HookFunction, dir: Direction, is_permanent: bool, level: int | None, prepend: bool
    ) -> LensHandle:
        if not callable(hook):
            raise ValueError(f"hook at {self.name}: expected a function of (tensor, hook), got {hook!r}.")
        require_choice("dir", dir, ("fwd", "bwd"))
        order = next(_ARRIVALS)
        return LensHandle(
            user_hook=hook, dir=dir, is_permanent=is_permanent, context_level=level, order=-order if prepend else order
        )

    def _handles(self, dir: Directions, including_permanent: bool, level: int | None) -> list[LensHandle]:
        if dir not in ("fwd", "bwd", "both"):
            raise ValueError(f"direction {dir!r}: expected 'fwd', 'bwd' or 'both'.")
        of_level = [handle for handle in self.here() if level in (None, handle.context_level) and not handle.removed]
        handles = [handle for handle in of_level if including_permanent or not handle.is_permanent]
        return [handle for way in ("fwd", "bwd") for handle in handles if dir in (way, "both") and handle.dir == way]

    def has_hooks(self, dir: Directions = "both", including_permanent: bool = True, level: int | None = None) -> bool:
        """Return whether there is a hook of a direction (and level); without permanent ones, if they are not
        to count."""
        if dir == "both" and not self.here():
            return False
        return bool(self._handles(dir, including_permanent, level))

    def remove_hooks(
        self, dir: Directions = "fwd", including_permanent: bool = False, level: int | None = None
    ) -> None:
        """Remove the hooks of a direction (and level); permanent ones only with `including_permanent`. Those of other
        threads' calls stay."""
        for handle in self._handles(dir, including_permanent, level):
            handle.remove()
        if self._own:
            with LOCK:
                self._own = _in_order(self._own)
        if self in HOOKS.get():
            set_hooks()


def _run_hooks(point: HookPoint, x: Tensor, handles: tuple[LensHandle, ...]) -> Tensor:
    backward = [bound_to_call(partial(_of_gradient, entry.user_hook))
                for entry in handles if entry.dir == "bwd" and not entry.removed]  # fmt: skip
    gradients = BackwardHook(point, backward, []) if backward else None
    if gradients is not None:
        (x,) = gradients.setup_input_hook((x,))
    for handle in handles:
        if handle.dir == "fwd" and not handle.removed:
            changed = handle.user_hook(x, hook=point)
            x = x if changed is None else changed
    return x if gradients is None else gradients.setup_output_hook(x)


def _of_gradient(hook: HookFunction, point: HookPoint, grad_input: Any, grad_output: Any) -> tuple[Tensor] | None:
    changed = hook(grad_output[0], hook=point)
    return changed if changed is None or isinstance(changed, tuple) else (changed,)
