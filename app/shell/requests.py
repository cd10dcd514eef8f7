"""The requests that callbacks take from a browser: of the form that the app's pages send, with values of their types.

A request of another form is refused before anything of it is done: a callback that there isn't, other inputs than it
has, a value of another type than the component's own (Dash says those of every property), a number that is not finite.
What a store holds has no type that Dash knows: under the names of the page's address it is held against what that
address could say, types and bounds included. Other choices and bounds are not told. So where a callback fails, its
values are held against what the page lays out, what the server has sent for that store, or an example of what the
page's script puts there (`Page.sends`). What is unlike them is the caller's fault, and refused, too; the rest is a
defect.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Optional, Union, get_args, get_origin

from dash import Dash
from dash.development.base_component import Component
from flask import abort, g, has_request_context, request

from app.core.address import Address
from app.shell.props import components

_PATH = "/_dash-update-component"
#: The depth to which what a browser sends may be nested; pages send four levels.
_DEEPEST = 16
#: Values that are remembered, by their hashes, of what the server has sent for a store; the oldest go first.
_REMEMBERED = 512

#: (id, property)
Place = tuple[str, str]


class Unlike(ValueError):
    """A request that no page of the app sends; the message says what was expected and what came."""


class RequestForms:
    """The forms of requests and of what is in them."""

    def __init__(self) -> None:
        self._components: Mapping[str, Component] = {}
        self._sent: dict[str, dict[int, None]] = {}
        self._declared: dict[str, Any] = {}
        self._same: dict[str, str] = {}
        self._addresses: dict[str, Address[Any]] = {}
        self._noting = threading.Lock()

    def address(self, address: Address[Any]) -> None:
        """Note a page's address, which must be able to say what the page's stores hold under its fields' names."""
        self._addresses[address.name] = address

    def declare(self, stores: Mapping[str, Any]) -> None:
        """Note examples of what browsers put into stores, in the words of `like`."""
        self._declared |= stores

    def same(self, store: str, stores: Iterable[str]) -> None:
        """Declare that what `store` holds, the others hold as well."""
        self._same |= dict.fromkeys(stores, store)

    def sent(self, store: str, value: Any) -> None:
        """Note what the server puts into a store, or offers as choices."""
        choices = (
            [each["value"] for each in value if isinstance(each, dict) and "value" in each] if _lists(value) else []
        )
        hashes = [_hash(each) for each in (value, *choices)]
        with self._noting:
            known = self._sent.setdefault(store, {})
            for each in hashes:
                known.pop(each, None)  # it is the newest again
                known[each] = None
            while len(known) > _REMEMBERED:
                del known[next(iter(known))]

    def laid_out(self, tree: Any) -> None:
        """Note what the stores of a page hold at first, which its address may say."""
        for component in components(tree):
            if getattr(component, "data", None) is not None:
                self.sent(component.id, component.data)

    def refuse_unlike(self, app: Dash, components: Mapping[str, Component]) -> None:
        """Answer 400 to every other request for a callback of `app`."""
        self._components = components

        @app.server.before_request
        def check() -> None:
            if request.path != _PATH or request.method != "POST":
                return
            try:
                body = request.get_json()
                g.asked_values = self._values(app, body)
            except (Unlike, RecursionError) as error:
                abort(400, f"No page of this app sends such a request: {error or 'it is nested too deeply'}.")
            g.asked = self

    def _values(self, app: Dash, body: Any) -> dict[Place, Any]:
        """The values of a request by where they are. Raises Unlike."""
        if not isinstance(body, dict) or not isinstance(body.get("output"), str):
            raise Unlike("expected an object that names an output")
        callback = app.callback_map.get(body["output"])
        if callback is None or "callback" not in callback:
            raise Unlike("there is no callback of that output")
        outputs = [] if callback["no_output"] else _places(body["output"])
        given = body.get("outputs", [])
        if "outputs" in body and [_place(each) for each in (given if isinstance(given, list) else [given])] != outputs:
            raise Unlike(f"expected the outputs {outputs}")
        values: dict[Place, Any] = {}
        for kind in ("inputs", "state"):
            expected = [(each["id"], each["property"]) for each in callback[kind]]
            entries = body.get(kind, [])
            if not isinstance(entries, list) or [_place(each) for each in entries] != expected:
                raise Unlike(f"expected the {kind} {expected}")
            for place, entry in zip(expected, entries, strict=True):
                if repr(values.setdefault(place, entry.get("value"))) != repr(entry.get("value")):
                    raise Unlike(f"expected one value of {'.'.join(place)}, which it names twice")
        changed = body.get("changedPropIds", [])
        if not isinstance(changed, list) or not all(isinstance(each, str) for each in changed):
            raise Unlike("expected a list of names under changedPropIds")
        g.asked_changed = changed
        for (id, prop), value in values.items():
            _check_numbers(value, f"{id}.{prop}")
            expected_type = _type_of(self._components.get(id), prop)
            if not fits(value, expected_type):
                raise Unlike(f"{id}.{prop} is no {type(value).__name__}")
            unsaid = self.unsaid(id, value) if prop == "data" else None
            if unsaid is not None:
                raise Unlike(f"what {id} says of {unsaid!r} could not stand in the page's address")
        return values

    def unsaid(self, store: str, value: Any, *, strict: bool = False) -> str | None:
        """Return the field of the page's address under whose name a store has what the address could not say."""
        address = self._addresses.get(store.partition("-")[0])
        return None if address is None else address.unsaid(value, strict=strict)

    def unlike(self, values: Mapping[Place, Any], changed: Sequence[str]) -> str | None:
        """Return the first place with a value that no page sends; None where all could be."""
        for (id, prop), value in values.items():
            component = self._components.get(id)
            if component is None:
                continue
            if value is None and prop == "value":
                if getattr(component, "value", None) is not None:  # what is chosen from the start cannot be emptied
                    return id
                continue
            if value is None:
                # A page's script asks by what it puts there; what is full from the start is never emptied.
                asks = f"{id}.{prop}" in changed and isinstance(self._declared.get(id), dict)
                if prop == "data" and (asks or isinstance(getattr(component, "data", None), dict)):
                    return id
                continue
            if prop == "data" and not self._known(id, value, component):
                return id
            if prop == "value" and not self._offered(component, value):
                return id
        return None

    def _known(self, store: str, value: Any, component: Component) -> bool:
        store = store if store in self._declared else self._same.get(store, store)
        if store in self._declared:
            return like(value, self._declared[store]) and self.unsaid(store, value, strict=True) is None
        first = getattr(self._components.get(store, component), "data", None)
        if _hash(value) in self._sent.get(store, {}):
            return True
        return first is not None and like(value, first) and self.unsaid(store, value, strict=True) is None

    def _offered(self, component: Component, value: Any) -> bool:
        """Whether a choice is among those that are laid out or were sent, and a number within the bounds."""
        options, sent = getattr(component, "data", None), self._sent.get(component.id, {})
        if isinstance(value, str) and isinstance(options, list):
            laid_out = [each.get("value") if isinstance(each, dict) else each for each in options]
            return value in laid_out or _hash(value) in sent
        least, most = getattr(component, "min", None), getattr(component, "max", None)
        if isinstance(value, int | float):
            return (least is None or value >= least) and (most is None or value <= most)
        return True


def refuse_wrong_values() -> None:
    """Answer 400 to the request under way if a value of it is none that a page sends; for where a callback failed."""
    asked = g.get("asked") if has_request_context() else None
    place = asked.unlike(g.asked_values, g.asked_changed) if asked is not None else None
    if place is not None:
        abort(400, f"No page of this app sends such a request: what it says of {place} has another form.")


def like(value: Any, example: Any) -> bool:
    """Return whether a value has the form of an example: the same keys and kinds; of a set, one of it. None is like
    anything.

    A tuple is a list of that length, a list is of any length.
    """
    if value is None or example is None:
        return True
    if isinstance(example, frozenset):
        return isinstance(value, str) and value in example
    if isinstance(example, bool) or isinstance(value, bool):
        return isinstance(example, bool) and isinstance(value, bool)
    if isinstance(example, int | float):
        return isinstance(value, int | float) and (isinstance(example, float) or float(value).is_integer())
    if isinstance(example, dict):
        return isinstance(value, dict) and all(key in value and like(value[key], each) for key, each in example.items())
    if isinstance(example, tuple) and example:
        return isinstance(value, list) and len(value) == len(example) and all(map(like, value, example))
    if isinstance(example, list | tuple):
        return isinstance(value, list | tuple) and all(
            any(like(each, part) for part in example or [None]) for each in value
        )
    return isinstance(value, str)


def fits(value: Any, expected: Any) -> bool:
    """Return whether a JSON value is of a type as Dash's components declare theirs."""
    origin, arguments = get_origin(expected), get_args(expected)
    if expected is Any:
        return True
    if expected is None or expected is type(None):
        return value is None
    if origin is Annotated:  # Dash's own way to say "a number"
        return isinstance(value, int | float) and not isinstance(value, bool)
    if origin is Union:
        return any(fits(value, argument) for argument in arguments)
    if origin is Literal:
        return value in arguments
    kind = origin or expected
    if kind is str or kind is bool:
        return isinstance(value, kind)
    if kind is dict or (isinstance(kind, type) and issubclass(kind, Mapping)):
        return isinstance(value, dict)
    if isinstance(kind, type) and issubclass(kind, Sequence):
        return isinstance(value, list) and all(fits(each, part) for part in arguments[:1] for each in value)
    return True


def _type_of(component: Component | None, prop: str) -> Any:
    """The type that a component's class declares for a property; anything where it says none."""
    if component is None:
        return Any
    parameter = inspect.signature(type(component).__init__).parameters.get(prop)
    if parameter is None or parameter.annotation is inspect.Parameter.empty:
        return Any
    return Optional[parameter.annotation]  # noqa: UP045


def _lists(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _hash(value: Any) -> int:
    """Hash what a browser sends back for a value: lists for tuples, 1 for 1.0."""
    if isinstance(value, dict):
        return hash(frozenset((str(name), _hash(part)) for name, part in value.items()))
    if _lists(value):
        return hash(("list", *map(_hash, value)))
    return hash((isinstance(value, bool), isinstance(value, str), value if value.__hash__ else repr(value)))


def _check_numbers(value: Any, where: str, depth: int = 0) -> None:
    """Raises Unlike for numbers that are not finite or not exact in a browser, and for what is nested too deeply."""
    if depth > _DEEPEST:
        raise Unlike(f"{where} is nested too deeply")
    if isinstance(value, float) and not math.isfinite(value):
        raise Unlike(f"{where} holds {value}, and only finite numbers are sent")
    if isinstance(value, int) and abs(value) > 2**53:
        raise Unlike(f"{where} holds a whole number above 2^53")
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        _check_numbers(part, where, depth + 1)


def _place(entry: Any) -> Place | None:
    if (
        not isinstance(entry, dict)
        or not isinstance(entry.get("id"), str)
        or not isinstance(entry.get("property"), str)
    ):
        return None
    return entry["id"], entry["property"].partition("@")[0]


def _places(output: str) -> list[Place]:
    """Split `id.property`, or `..id.property...id.property..`; one that others set too has `@` and more behind it."""
    parts = (each.rpartition(".") for each in output.removeprefix("..").removesuffix("..").split("..."))
    return [(id, prop.partition("@")[0]) for id, _, prop in parts]
