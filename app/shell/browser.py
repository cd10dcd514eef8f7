"""The browser's side of a page: functions of its script, links to other pages, and what writes its address.

    BROWSER = (
        Browser("show", inputs=stores(shown=ids.SHOWN), outputs=children(title=ids.TITLE)),
        Link("circuits", to=ids.OPEN, head=(ids.HEAD, "data")),
    )

    aotlens.page("heads", { show({ shown }) { return { title: shown.name }; } });   // heads.js

Dash takes no dicts for functions in the browser, so the names go to it in a script of their own (`Wiring.script`), and
static/wiring.js hands each function its values by name and puts its answers, by name, where they belong.

Dash walks the page for each of its callbacks at every step of every other one. A function that answers nothing, or that
`listens`, is therefore none of them: it is called when Dash's store holds something else (static/listening.js).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from dash import ClientsideFunction, Dash, Input, Output, State

from app.core.address import Address
from app.shell.props import Prop, Props, as_role

#: A component's id, and where in it a value is: a property, then keys inside; with several, the value is their list.
#: `(ids.SHOWN, "data.layer", "data.head")` is a head. A property without a value is nothing; a key that isn't there yet
#: keeps the address as it is.
Source = tuple[str, ...] | Prop

#: A component's id and one of its properties.
Place = tuple[str, str]


@dataclass(frozen=True)
class Browser:
    """A function of the page's script. Inputs, then `state`, reach it by name; what it returns names outputs.

    An output that it does not name stays as it is.
    """

    name: str
    inputs: Props = field(default_factory=dict, kw_only=True)
    state: Props = field(default_factory=dict, kw_only=True)
    outputs: Props = field(default_factory=dict, kw_only=True)
    at_first: bool = field(default=True, kw_only=True)
    """Whether it is called when the page is new."""
    listens: bool | None = field(default=None, kw_only=True)
    """Whether it is no callback of Dash's; by default, if it has no outputs. One with outputs may be such a listener
    if no callback of the server waits for them at first."""


class Link:
    """The address of the page `page`, with these fields, as the `href` of `to`: kept up to date by the browser.

    `always` are fields that are the same whatever is shown, as the tab that the link opens.
    """

    def __init__(self, page: str, *, to: str, always: Mapping[str, str] | None = None, **fields: Source) -> None:
        self.page, self.to, self.fields, self.always = page, to, fields, dict(always or {})


class Wiring:
    """The list that the browser is told: the addresses' fields, and the names of every function's values."""

    def __init__(self, pages: Sequence[Any]) -> None:
        """Take the addresses' fields of `app.shell.page.Page`s."""
        self._addresses: dict[str, Any] = {}
        for page in pages:
            paths = [page.path, "/"] if page is pages[0] else [page.path]
            self._addresses[page.name] = {"paths": paths, "fields": page.address.browser()}
        self._callbacks: dict[str, dict[str, Any]] = {}
        self._listeners: list[dict[str, Any]] = []
        self.called: list[tuple[str, str]] = []
        """(script, function) of all that are called."""

    @property
    def listened(self) -> Iterator[Place]:
        """Yield each component and property that a function reads or sets which is no callback of Dash's."""
        for listener in self._listeners:
            yield from (*listener["inputs"], *listener["state"], *listener["outputs"])

    def register(self, app: Dash, page: str, entry: Browser, *, script: str | None = None) -> None:
        """Add a page's entry; its function is in the script `script`, by default the page's own."""
        script = script or page
        self.called.append((script, entry.name))
        names = [*entry.inputs, *entry.state]
        if len(set(names)) < len(names):
            raise ValueError(f"{page}: {entry.name} has a name twice: {names}.")
        wire = {"run": [script, entry.name], "inputs": names, "outputs": list(entry.outputs)}
        if not entry.outputs if entry.listens is None else entry.listens:
            told = {"inputs": entry.inputs, "state": entry.state, "outputs": entry.outputs}
            places = {name: list(map(_place, given.values())) for name, given in told.items()}
            self._listen(page, entry.name, wire, places, at_first=entry.at_first)
            return
        app.clientside_callback(
            self._add(page, entry.name, wire),
            *as_role(Output, entry.outputs).values(),
            *as_role(Input, entry.inputs).values(),
            *as_role(State, entry.state).values(),
            prevent_initial_call=not entry.at_first,
        )

    def write_address(self, page: str, address: Address[Any], sources: Mapping[str, Source]) -> None:
        """Let the browser write the page's address from `sources`. Raises ValueError where a field has none."""
        if sources and set(sources) != set(address.names()):
            differing = sorted(set(sources) ^ set(address.names()))
            raise ValueError(f"{page}: `writes` and the address differ in {', '.join(differing)}.")
        if sources:
            places: dict[tuple[str, str], int] = {}
            wire = {"write": self._composed(page, page, sources, {}, places)}
            self._listen(page, "address", wire, {"inputs": list(places)})

    def link(self, page: str, links: Sequence[Link]) -> None:
        """Let the browser keep a page's links up to date."""
        if links:
            places: dict[tuple[str, str], int] = {}
            wires = [self._composed(page, link.page, link.fields, link.always, places) for link in links]
            wire = {"links": wires, "to": [link.to for link in links]}
            told = {"inputs": list(places), "outputs": [(link.to, "href") for link in links]}
            self._listen(page, "links", wire, told)

    def _composed(
        self,
        page: str,
        target: str,
        fields: Mapping[str, Source],
        always: Mapping[str, str],
        places: dict[tuple[str, str], int],
    ) -> dict[str, Any]:
        """An address of `target` from the values of `places`, which gets those that are new."""
        if target not in self._addresses:
            raise ValueError(f"{page}: there is no page {target!r} to link to.")
        unknown = {*fields, *always} - set(self._addresses[target]["fields"])
        if unknown:
            raise ValueError(f"{page}: the address of {target} has no {', '.join(sorted(unknown))}.")
        sources: dict[str, list[list[Any]]] = {}
        for name, source in fields.items():
            component, *ways = cast("tuple[str, ...]", source)
            sources[name] = []
            for way in ways:
                prop, *keys = way.split(".")
                place = places.setdefault((component, prop), len(places))
                sources[name].append([place, *keys])
        return {"target": target, "sources": sources, "always": dict(always)}

    def _listen(
        self,
        page: str,
        name: str,
        wire: dict[str, Any],
        places: Mapping[str, Sequence[Place]],
        *,
        at_first: bool = True,
    ) -> None:
        """Calls the function when one of the `inputs` is something else; `state` is handed to it after them."""
        wire = {"inputs": [f"{component}.{prop}" for component, prop in places["inputs"]], **wire}
        call = self._add(page, name, wire)
        told = {"state": [], "outputs": [], **places}
        self._listeners.append({"call": [call.namespace, call.function_name], "first": at_first, **told})

    def _add(self, page: str, name: str, wire: dict[str, Any]) -> ClientsideFunction:
        calls = self._callbacks.setdefault(page, {})
        label = f"{name}-{len(calls)}"
        calls[label] = wire
        return ClientsideFunction(page, label)

    def script(self) -> str:
        """Return the script that ties the functions to Dash's callbacks; it runs after all others."""
        told = {"addresses": self._addresses, "callbacks": self._callbacks, "listeners": self._listeners}
        return f"aotlens.wire({json.dumps(told, ensure_ascii=False)});\n"


def _place(prop: Prop) -> Place:
    return prop if isinstance(prop, tuple) else (prop.component_id, prop.component_property)
