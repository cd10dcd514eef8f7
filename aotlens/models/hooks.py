"""Hook points, and the base class of a model that has them: TransformerLens's names and semantics.

A `HookPoint` returns what it receives. A hook on it, `hook(tensor, hook=point)`, receives the activation of every
forward pass, and what it returns replaces the activation, unless it is None; a backward hook does the same with the
gradient.

Hooks of `add_hook` are state of the model: the calls of every thread run them until they are removed. All others belong
to a call. `hooks()`, `run_with_hooks` and `run_with_cache` keep theirs in a context variable, which each thread (and
each task of asyncio) has for itself, so calls in different threads never see each other's hooks and never wait.

Their end removes what they added. A context has a level, one more than the context around it, and its end removes the
hooks of its level: those of an outer context, those of `add_hook` without a level, and permanent ones stay.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, TypeAlias

import torch
from torch import nn

from aotlens.models.cache import HookFunction, PosSlice, caching_hooks, run_backward
from aotlens.models.hook_points import (
    CONTEXTS,
    HOOKS,
    LOCK,
    Context,
    Direction,
    Directions,
    HookPoint,
    LensHandle,
    set_hooks,
)

#: The hook points that are meant: all (None), one or several by name, or those for whose name the function returns
#: True.
NamesFilter: TypeAlias = str | Sequence[str] | Callable[[str], bool] | None
#: A hook point's name, or a function of names, and what is called there.
NamedHooks: TypeAlias = Iterable[tuple[str | Callable[[str], bool], HookFunction]]


class HookedRootModule(nn.Module):
    """A module with hook points, which several threads may use at once.

    A subclass calls `setup()` at the end of its `__init__`; then `hook_dict` has every hook point by its name.

    `run_with_cache`, `run_with_hooks` and the `hooks()` context concern the calls of their own thread alone, and those
    that `reset_hooks_end=False` leaves concern its later calls; hooks of `add_hook` apply to the calls of every thread.
    A thread that is started inside `with model.hooks(…)` runs these hooks only by
    `contextvars.copy_context().run(…)`.

    A compiled model (`model.compile()`, `torch.compile(model)`) runs uncompiled where hooks belong to the call, which
    `torch.compile` with `fullgraph=True` refuses. A function compiled around the model breaks its graph there while
    any thread has such hooks.
    """

    hook_dict: dict[str, HookPoint]

    def __init__(self) -> None:
        super().__init__()
        self._n_contexts, self._has_contexts = 0, False  # of all threads: compiled functions look at the second

    @property
    def context_level(self) -> int:
        """The number of this model's contexts that are open around the current call."""
        return sum(context.is_open and context.hook_dict is self.hook_dict for context in CONTEXTS.get())

    def setup(self) -> None:
        """Name the hook points and list them in `hook_dict`."""
        self.hook_dict = {}
        for name, module in self.named_modules():
            if isinstance(module, HookPoint):
                module.name = name
                self.hook_dict[name] = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return _call_uncompiled(self, args, kwargs) if self._has_contexts else super().__call__(*args, **kwargs)
        contexts = CONTEXTS.get()
        if not contexts and not HOOKS.get():
            return super().__call__(*args, **kwargs)
        for context in contexts:
            if context.before_call is not None and context.is_open and context.hook_dict is self.hook_dict:
                context.before_call(*args, **kwargs)
        compiles = "torch._dynamo.eval_frame" in sys.modules  # where nothing is compiled nothing is imported
        call = torch.compiler.disable(self._call_impl) if compiles else self._call_impl
        return call(*args, **kwargs)

    def _count(self, n: int) -> None:
        with LOCK:
            self._n_contexts += n
            self._has_contexts = self._n_contexts > 0

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

    def _points_of(self, name: str | Callable[[str], bool]) -> list[HookPoint]:
        if not (isinstance(name, str) or callable(name)):
            raise ValueError(f"name: expected a hook point's name or a function of names, got {name!r}.")
        return self._points(name, "name")

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
        if level is not None:
            self._count(1)
        for point in self._points_of(name):
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
        """Remove all hooks but the permanent ones, or those of one direction or context level alone. Those that belong
        to another thread's call stay.

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
        *,
        before_call: Callable[..., None] | None = None,
    ) -> Iterator[Any]:
        """Open a context with hooks: pairs of a name (or a function of names) and what is called there.

        Its end removes them, also where something was raised, unless `reset_hooks_end=False`; `clear_contexts` then
        empties every `ctx`. `before_call` is called with the arguments of each call of the model inside. Calls in other
        threads are not concerned.
        """
        _let_calls_run_uncompiled()
        level = self.context_level + 1
        context = Context(hook_dict=self.hook_dict, before_call=before_call)
        CONTEXTS.set((*(opened for opened in CONTEXTS.get() if opened.is_open), context))
        self._count(1)
        try:
            added: list[tuple[HookPoint, LensHandle]] = []
            ways: tuple[tuple[Direction, NamedHooks], ...] = ("fwd", fwd_hooks), ("bwd", bwd_hooks)
            for way, pairs in ways:
                for name, hook in pairs:
                    points = self._points_of(name)
                    added += [(point, point.handle(hook, way, False, level, False)) for point in points]
            set_hooks(added)
            context.handles += [handle for _, handle in added]
            yield self
        finally:
            context.is_open = False
            CONTEXTS.set(tuple(opened for opened in CONTEXTS.get() if opened.is_open))
            if reset_hooks_end:
                for handle in context.handles:  # also where another thread ends it, as it may with a generator
                    handle.remove()
                self._end_level(level, clear_contexts)
                self._count(-1)

    def _end_level(self, level: int, clear_contexts: bool) -> None:
        """Remove the temporary hooks of a level from the current call."""
        if clear_contexts:
            self.reset_hooks(level=level)
        for point, handles in HOOKS.get().items():
            if self.hook_dict.get(str(point.name)) is point:
                for handle in handles:
                    if handle.context_level == level:
                        handle.remove()
        set_hooks()

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

        It calls the model, and not its `forward`, so `before_call` and PyTorch's own hooks on the model run too.
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


def _call_uncompiled(model: HookedRootModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return torch.compiler.disable(model)(*args, **kwargs)


_call_uncompiled._torchdynamo_disable = True  # type: ignore[attr-defined]  # as torch.compiler.disable, which imports


def _let_calls_run_uncompiled() -> None:
    """Let `torch.compile(model)` compile what is inside `__call__`, but not this itself, which looks for hooks."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    if compiler is not None:
        compiler.skip_code(HookedRootModule.__call__.__code__)
