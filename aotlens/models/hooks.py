"""Hook points, and the base class of a model that has them: TransformerLens's names and semantics.

A `HookPoint` gives back what it gets. A hook on it, `hook(tensor, hook=point)`, sees the activation of every forward
pass, and what it returns takes the activation's place, unless that is None; a backward hook does the same with the
gradient. Hooks are state of the model: they stay until they are removed.

`hooks()`, `run_with_hooks` and `run_with_cache` remove at their end what they added. A context has a level, one more
than the context around it, and its end removes the hooks of its level: those of an outer context, those of `add_hook`,
which have no level, and permanent ones stay.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from aotlens.models.cache import HookFunction, PosSlice, caching_hooks, run_backward
from aotlens.models.run_lock import RunLock, let_compiled_calls_wait

Direction: TypeAlias = Literal["fwd", "bwd"]
Directions: TypeAlias = Literal["fwd", "bwd", "both"]
#: The hook points that are meant: all (None), one or several by name, or those for whose name the function returns
#: True.
NamesFilter: TypeAlias = str | Sequence[str] | Callable[[str], bool] | None
#: A hook point's name, or a function of names, and what is called there.
NamedHooks: TypeAlias = Iterable[tuple[str | Callable[[str], bool], HookFunction]]


@dataclass(frozen=True, kw_only=True, eq=False)
class LensHandle:
    """A hook on a hook point: PyTorch's handle of it, and what `reset_hooks` needs to know."""

    hook: RemovableHandle
    is_permanent: bool
    context_level: int | None
    user_hook: HookFunction


class HookPoint(nn.Module):
    """The identity, where hooks can be put on. The root module's `setup` gives it its `name`."""

    def __init__(self) -> None:
        super().__init__()
        self.name: str | None = None
        self.fwd_hooks: list[LensHandle] = []
        self.bwd_hooks: list[LensHandle] = []
        self.ctx: dict[Any, Any] = {}  # what hooks keep between calls; `reset_hooks` empties it

    def forward(self, x: Tensor) -> Tensor:
        return x

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
        before those that are there. Raises `ValueError` for a hook that is not callable and an unknown `dir`.
        """
        if not callable(hook):
            raise ValueError(f"hook at {self.name}: expected a function of (tensor, hook), got {hook!r}.")
        if dir == "fwd":
            # The point that PyTorch names, not this one: of a copied model it is the copy's.
            handle = self.register_forward_hook(lambda point, inputs, output: hook(output, hook=point), prepend=prepend)
        elif dir == "bwd":

            def with_gradient(point: nn.Module, grad_input: Any, grad_output: Any) -> tuple[Tensor] | None:
                changed = hook(grad_output[0], hook=point)
                return changed if changed is None or isinstance(changed, tuple) else (changed,)

            handle = self.register_full_backward_hook(with_gradient, prepend=prepend)
        else:
            raise ValueError(f"dir={dir!r}: expected 'fwd' or 'bwd'.")
        lens_handle = LensHandle(hook=handle, is_permanent=is_permanent, context_level=level, user_hook=hook)
        handles = self.fwd_hooks if dir == "fwd" else self.bwd_hooks
        handles.insert(0 if prepend else len(handles), lens_handle)
        return lens_handle

    def _handles(self, dir: Directions, including_permanent: bool, level: int | None) -> list[LensHandle]:
        if dir not in ("fwd", "bwd", "both"):
            raise ValueError(f"direction {dir!r}: expected 'fwd', 'bwd' or 'both'.")
        handles = (self.fwd_hooks if dir != "bwd" else []) + (self.bwd_hooks if dir != "fwd" else [])
        of_level = [handle for handle in handles if level in (None, handle.context_level)]
        return [handle for handle in of_level if including_permanent or not handle.is_permanent]

    def has_hooks(self, dir: Directions = "both", including_permanent: bool = True, level: int | None = None) -> bool:
        """Return whether there is a hook of a direction (and level); without permanent ones, if they are not
        to count."""
        return bool(self._handles(dir, including_permanent, level))

    def remove_hooks(
        self, dir: Directions = "fwd", including_permanent: bool = False, level: int | None = None
    ) -> None:
        """Remove the hooks of a direction (and level); permanent ones only with `including_permanent`."""
        for handle in self._handles(dir, including_permanent, level):
            handle.hook.remove()
            (self.fwd_hooks if handle in self.fwd_hooks else self.bwd_hooks).remove(handle)


class HookedRootModule(nn.Module):
    """A module with hook points, which several threads may use at once.

    A subclass calls `setup()` at the end of its `__init__`; then `hook_dict` has every hook point by its name.

    `run_with_cache`, `run_with_hooks` and the `hooks()` context have the model to themselves: a call of the model in
    another thread waits until they end, and they wait until calls in progress have ended. Calls wait for nothing
    else. Within one thread nothing waits.

    A hook, or the body of `with model.hooks(…)`, must not wait for another thread that uses the model: neither would
    ever go on. Hooks left by `add_hook`, or with `reset_hooks_end=False`, apply to the calls of every thread, as in
    TransformerLens. A function compiled around the model calls it without waiting; `model.compile()` and
    `torch.compile(model)` wait.
    """

    hook_dict: dict[str, HookPoint]

    def __init__(self) -> None:
        super().__init__()
        self.context_level = 0
        self._run_lock = RunLock()

    def setup(self) -> None:
        """Name the hook points and list them in `hook_dict`."""
        self.hook_dict = {}
        for name, module in self.named_modules():
            if isinstance(module, HookPoint):
                module.name = name
                self.hook_dict[name] = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # a lock cannot be traced, and would break the graph around the model
            return super().__call__(*args, **kwargs)
        self._run_lock.begin_plain()
        try:
            return super().__call__(*args, **kwargs)
        finally:
            self._run_lock.end_plain()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        duplicate = memo[id(self)] = type(self).__new__(type(self))
        self._run_lock.begin_plain()  # or the copy would keep the hooks of another thread's run
        try:
            duplicate.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        finally:
            self._run_lock.end_plain()
        return duplicate

    def _points(self, names: NamesFilter, argument: str) -> list[HookPoint]:
        """The hook points that are meant, in the model's order. Raises `ValueError` for a name that none has."""
        if names is None or callable(names):
            return [point for name, point in self.hook_dict.items() if names is None or names(name)]
        if not isinstance(names, Iterable):
            raise ValueError(f"{argument}: expected names or a function of names, got {names!r}.")
        wanted = [names] if isinstance(names, str) else list(names)
        for name in wanted:
            if name not in self.hook_dict:
                nearest = ", ".join(get_close_matches(str(name), self.hook_dict, cutoff=0.3)) or "hook_dict's"
                raise ValueError(f"{argument}: no hook point {name!r}; expected a name such as {nearest}.")
        return [point for name, point in self.hook_dict.items() if name in wanted]

    def add_hook(
        self,
        name: str | Callable[[str], bool],
        hook: HookFunction,
        dir: Direction = "fwd",
        is_permanent: bool = False,
        level: int | None = None,
        prepend: bool = False,
    ) -> None:
        """Call `HookPoint.add_hook` at the hook point of a name, or at all for whose name a function returns True.

        The hook stays until `reset_hooks`, a permanent one until `reset_hooks(including_permanent=True)`. Raises
        `ValueError` also for a name that no hook point has.
        """
        if not (isinstance(name, str) or callable(name)):
            raise ValueError(f"name: expected a hook point's name or a function of names, got {name!r}.")
        for point in self._points(name, "name"):
            point.add_hook(hook, dir, is_permanent, level, prepend)

    def list_hooks(
        self, name_filter: NamesFilter = None, dir: Directions = "both", including_permanent: bool = True
    ) -> dict[str, list[LensHandle]]:
        """Return the hooks of every hook point that has any, by its name."""
        points = self._points(name_filter, "name_filter")
        listed = {str(point.name): point._handles(dir, including_permanent, None) for point in points}
        return {name: handles for name, handles in listed.items() if handles}

    def reset_hooks(
        self,
        clear_contexts: bool = True,
        direction: Directions = "both",
        including_permanent: bool = False,
        level: int | None = None,
    ) -> None:
        """Remove all hooks but the permanent ones, or those of one direction or context level alone.

        `clear_contexts` empties the hook points' `ctx`.
        """
        for point in self.hook_dict.values():
            if clear_contexts:
                point.ctx = {}
            point.remove_hooks(direction, including_permanent, level)

    @contextmanager
    def hooks(
        self,
        fwd_hooks: NamedHooks = (),
        bwd_hooks: NamedHooks = (),
        reset_hooks_end: bool = True,
        clear_contexts: bool = False,
    ) -> Iterator[Any]:
        """Open a context with hooks: pairs of a name (or a function of names) and what is called there.

        Its end removes them, also where something was raised, unless `reset_hooks_end=False`; `clear_contexts` then
        empties every `ctx`. Calls of the model in other threads wait until it ends.
        """
        let_compiled_calls_wait(HookedRootModule.__call__)
        self._run_lock.begin_hooked()
        try:
            self.context_level += 1
            try:
                for name, hook in fwd_hooks:
                    self.add_hook(name, hook, "fwd", level=self.context_level)
                for name, hook in bwd_hooks:
                    self.add_hook(name, hook, "bwd", level=self.context_level)
                yield self
            finally:
                if reset_hooks_end:
                    self.reset_hooks(clear_contexts, level=self.context_level)
                self.context_level -= 1
        finally:
            self._run_lock.end_hooked()

    def run_with_hooks(
        self,
        *model_args: Any,
        fwd_hooks: NamedHooks = (),
        bwd_hooks: NamedHooks = (),
        reset_hooks_end: bool = True,
        clear_contexts: bool = False,
        **model_kwargs: Any,
    ) -> Any:
        """Return the model's output within `hooks()` of these hooks.

        It calls the model, and not its `forward`: what is registered for calls, as `aotlens.heads.without` is, counts.
        A backward pass comes later, so backward hooks need `reset_hooks_end=False`, and `reset_hooks()` after it.
        """
        bwd_hooks = list(bwd_hooks)
        if bwd_hooks and reset_hooks_end:
            logging.warning("run_with_hooks: backward hooks end before a backward pass; set reset_hooks_end=False.")
        with self.hooks(fwd_hooks, bwd_hooks, reset_hooks_end, clear_contexts) as hooked_model:
            return hooked_model(*model_args, **model_kwargs)

    def run_with_cache(
        self,
        *model_args: Any,
        names_filter: NamesFilter = None,
        device: str | torch.device | None = None,
        remove_batch_dim: bool = False,
        incl_bwd: bool = False,
        reset_hooks_end: bool = True,
        clear_contexts: bool = False,
        pos_slice: PosSlice = None,
        **model_kwargs: Any,
    ) -> tuple[Any, Any]:
        """Return the model's output, and by name the activations, detached, at the hook points that `names_filter`
        means.

        - `incl_bwd` runs the output, a scalar, backward, and caches gradients too, as `NAME_grad`.
        - `device` is where they are kept; None leaves them where they are.
        - `remove_batch_dim` takes the first dimension off a batch of one.
        - `pos_slice` keeps some positions (of queries, in scores and patterns); a single one keeps its dimension.

        Raises `ValueError` for names that no hook point has, a larger batch, and an output that has no gradient.
        """
        names = [str(point.name) for point in self._points(names_filter, "names_filter")]
        cache, fwd_hooks, bwd_hooks = caching_hooks(names, incl_bwd, device, remove_batch_dim, pos_slice)
        with self.hooks(fwd_hooks, bwd_hooks, reset_hooks_end, clear_contexts) as hooked_model:
            output = hooked_model(*model_args, **model_kwargs)
            if incl_bwd:
                run_backward(output)
        return output, cache
