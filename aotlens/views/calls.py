"""Calls of the library as values: what is run for a view is what is printed as its Python.

model = Load("regression-5d-mhsa")
task = make("aotlens.data.RegressionTask", d=5).named("task")
scores = call("aotlens.denoise.regression.support_scores", model, task, n_prompts=256, seed=0)
scores.run()       # loads the model, calls, and returns the SupportScores
scores.python()    # import aotlens
                   #
                   # model = aotlens.load('regression-5d-mhsa')
                   # task = aotlens.data.RegressionTask(d=5)
                   # result = aotlens.denoise.regression.support_scores(model, task, n_prompts=256, seed=0)
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

from aotlens.files import contents_hash

if TYPE_CHECKING:
    from pathlib import Path

    from aotlens.conventions import Progress

#: The longest line of what is printed; a longer call has an argument a line.
_LINE = 110


class Node:
    """A value that is still to be computed. Two that are written alike are equal."""

    @cached_property
    def source(self) -> str:
        """The value as one expression of Python."""
        return _written(self, {})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and other.source == self.source

    def __hash__(self) -> int:
        return hash(self.source)

    def run(self, workshop: Workshop | None = None) -> Any:
        """Return the value, computed. Raises what the functions raise."""
        return _run(self, workshop or Workshop())

    @property
    def stamps(self) -> tuple[int, ...]:
        """The stamps of the files that it reads."""
        return tuple(node.stamp for node in _within(self) if isinstance(node, Call) and node.stamp)

    @property
    def models(self) -> tuple[str, ...]:
        """The checkpoints that it reads, in their order."""
        return tuple(dict.fromkeys(node.checkpoint for node in _within(self) if isinstance(node, Load)))

    def python(self, *after: str) -> str:
        """Write the lines that give the same as `result`, and then the lines `after`."""
        alone, lines = len(self.models) == 1, []
        names: dict[Node, str] = {}
        for node in dict.fromkeys(_within(self)):
            name = "model" if alone and isinstance(node, Load) else getattr(node, "called", None)
            if name is not None and node != self:
                lines.append(_line(name, node, names))
                names[node] = name
        return "\n".join(["import aotlens", "", *lines, _line("result", self, names), *after]) + "\n"

    def part(self, name: str) -> Part:
        """Return the attribute `name` of the value."""
        return Part(self, name)

    def item(self, place: Any) -> Part:
        """Return the value's item at a place."""
        return Part(self, place, item_of=True)

    def method(self, name: str, *args: Any, **options: Any) -> Call:
        """Return a method of the value, called: in no time, as what `make` gives."""
        return Call(Part(self, name), args, options, kept=False)


@dataclass(frozen=True, eq=False)
class Load(Node):
    """A checkpoint's model."""

    checkpoint: str
    called: str | None = None
    """The variable that gets a line of its own if it is printed next to another model."""


@dataclass(frozen=True, eq=False)
class Part(Node):
    """An attribute of a value, or an item."""

    of: Node
    name: Any
    item_of: bool = False


@dataclass(frozen=True, eq=False)
class Call(Node):
    """The value that a function gives: a dotted name of the library, or a value's method."""

    function: str | Part
    args: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    kept: bool = True
    """Whether it is work that is worth remembering (`Workshop.call`)."""
    called: str | None = None
    """The variable that gets a line of its own where it is printed."""
    stamp: int = 0
    """The mark that tells what is read from a file from what was read of the same name before; it is not printed."""
    runs: bool = False
    """Whether it runs the models that its arguments were computed with, and not only those that it is handed."""
    opens: Callable[[], Any] | None = None
    """What gives the value instead of the function, of a file whose folder is not printed."""

    def opened_by(self, opens: Callable[[], Any], stamp: int) -> Call:
        """Return the call whose value `opens` gives, with the stamp of the file."""
        return replace(self, opens=opens, stamp=stamp)

    def stamped(self, stamp: int) -> Call:
        """Return the call with the stamp of its file as it is now."""
        return replace(self, stamp=stamp)

    def running(self) -> Call:
        """Return the call as one that runs the models behind its arguments, as an expansion's."""
        return replace(self, runs=True)

    def named(self, name: str) -> Call:
        """Return the call with a line of its own where it is printed, as the variable `name`."""
        return replace(self, called=name)


def stamp_of(*words: str) -> int:
    """Return a stamp for `Call.stamped`, by the hash of what tells one content from another."""
    return int(contents_hash({}, {"words": words})[:16], 16)


def call(function: str, *args: Any, **options: Any) -> Call:
    """Return the call of a library function by its dotted name: work that is worth remembering."""
    return Call(function, args, options)


def make(function: str, *args: Any, **options: Any) -> Call:
    """Return the call of what is made in no time, as a task."""
    return Call(function, args, options, kept=False)


class Workshop:
    """The runner of calls: here from the user's own checkpoints and those of `folders`, remembering nothing."""

    progress: Progress | None = None
    """The callback that functions call which count their steps."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._folders = folders

    def watch(self) -> Progress | None:
        """Return the callback that a function which counts what it does is to tell; it may raise to stop it."""
        return self.progress

    def load(self, checkpoint: str) -> Any:
        """Return the model of a checkpoint."""
        from aotlens.checkpoints import load

        return load(checkpoint, folders=self._folders)

    def call(self, node: Call, work: Callable[[], Any]) -> Any:
        """Return the result of a call that is worth remembering: what `work` gives. Its arguments are run inside
        `work`."""
        return work()

    def use(self, models: Sequence[str], function: Callable[[], Any]) -> Any:
        """Return the value of a function that is handed these checkpoints' models."""
        return function()


def _run(value: Any, workshop: Workshop) -> Any:
    if isinstance(value, Load):
        return workshop.load(value.checkpoint)
    if isinstance(value, Part):
        whole = _run(value.of, workshop)
        return whole[value.name] if value.item_of else getattr(whole, value.name)
    if isinstance(value, Call):
        return workshop.call(value, lambda: _called(value, workshop)) if value.kept else _called(value, workshop)
    if isinstance(value, list | tuple):
        return type(value)(_run(item, workshop) for item in value)
    if isinstance(value, dict):
        return {name: _run(item, workshop) for name, item in value.items()}
    return value


def _called(node: Call, workshop: Workshop) -> Any:
    if node.opens is not None:
        return node.opens()
    function = _function_of(node.function) if isinstance(node.function, str) else _run(node.function, workshop)
    args = [_run(item, workshop) for item in node.args]
    options = {name: _run(item, workshop) for name, item in node.options.items()}
    progress = workshop.watch()
    if progress is not None and "progress" in signature(function).parameters:
        options["progress"] = progress
    handed = node.models if node.runs else [item.checkpoint for item in _arguments(node) if isinstance(item, Load)]
    return workshop.use(handed, lambda: function(*args, **options))


def _function_of(name: str) -> Any:
    module, _, function = name.rpartition(".")
    owner, _, kind = module.rpartition(".")
    if kind[:1].isupper():  # a class's own way to make it
        return getattr(getattr(import_module(owner), kind), function)
    return getattr(import_module(module), function)


def _arguments(node: Call) -> list[Any]:
    return [*node.args, *node.options.values()]


def _within(value: Any) -> Iterator[Node]:
    """All that a value is computed from, each after what it needs; the value itself at the end."""
    if isinstance(value, Part):
        yield from _within(value.of)
    elif isinstance(value, Call):
        yield from _within([] if isinstance(value.function, str) else value.function)
        yield from _within(_arguments(value))
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _within(item)
    if isinstance(value, Node):
        yield value


def _line(name: str, node: Node, names: Mapping[Node, str]) -> str:
    line = f"{name} = {_written(node, names)}"
    return line if len(line) <= _LINE else f"{name} = {_written(node, names, broken=True)}"


def _written(value: Any, names: Mapping[Node, str], *, broken: bool = False) -> str:
    """Write the Python for a value; `broken`, an argument a line. Nodes that have names are written so."""
    if names and isinstance(value, Node) and value in names:
        return names[value]
    if isinstance(value, Load):
        return f"aotlens.load({value.checkpoint!r})"
    if isinstance(value, Part):
        place = ", ".join(map(repr, value.name if isinstance(value.name, tuple) else (value.name,)))
        return f"{_written(value.of, names)}{f'[{place}]' if value.item_of else f'.{value.name}'}"
    if isinstance(value, Call):
        function = value.function if isinstance(value.function, str) else _written(value.function, names)
        arguments = [_written(item, names, broken=broken and isinstance(item, list | dict)) for item in value.args]
        arguments += [f"{name}={_written(item, names)}" for name, item in value.options.items()]
        return f"{function}{_brackets('()', arguments, broken)}"
    if isinstance(value, tuple) and any(isinstance(item, Node) for item in value):
        return _brackets("()", [*(_written(item, names) for item in value), *([""] if len(value) == 1 else [])], broken)
    if isinstance(value, list):
        return _brackets("[]", [_written(item, names) for item in value], broken)
    if isinstance(value, dict):
        return _brackets("{}", [f"{name!r}: {_written(item, names)}" for name, item in value.items()], broken)
    return repr(value)


def _brackets(pair: str, parts: Sequence[str], broken: bool) -> str:
    lines = textwrap.indent("".join(f"{part},\n" for part in parts), "    ")
    inside = f"\n{lines}" if broken and parts else ", ".join(parts)
    return f"{pair[0]}{inside}{pair[1]}"
