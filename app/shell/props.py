"""Names for components' properties, as callbacks and functions in the browser take them.

`values(view=ids.VIEW)` is `{"view": (ids.VIEW, "value")}`: an input, a state or an output, by where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from dash.dependencies import DashDependency
from dash.development.base_component import Component

#: A component's id and the property; or Dash's own form, where there is more to say.
Prop = tuple[str, str] | DashDependency
Props = Mapping[str, Prop]

Role = TypeVar("Role", bound=DashDependency)


def props(name: str, **components: str) -> dict[str, Prop]:
    """Return the property `name` of each."""
    return {key: (component, name) for key, component in components.items()}


values = partial(props, "value")
stores = partial(props, "data")
children = partial(props, "children")


def inside(store: str, *keys: str) -> dict[str, Prop]:
    """Return the properties of what a store holds under these keys, for an address."""
    return {key: (store, f"data.{key}") for key in keys}


def as_role(role: type[Role], named: Props | None) -> dict[str, Any]:
    """Return each as Dash's `Input`, `State` or `Output`."""
    return {key: role(*prop) if isinstance(prop, tuple) else prop for key, prop in (named or {}).items()}


def components(tree: Any) -> Iterator[Component]:
    """Yield every component with an id, wherever in a layout it is."""
    if isinstance(tree, list | tuple):
        for part in tree:
            yield from components(part)
    elif isinstance(tree, Component):
        if isinstance(getattr(tree, "id", None), str):
            yield tree
        for name in tree._prop_names:
            yield from components(getattr(tree, name, None))
