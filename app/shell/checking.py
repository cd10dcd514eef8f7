"""Every callback against all layouts, at start: a mistyped id or property, or an id given twice, stops the app.

So does a panel that offers "Python for this view" where nothing writes it, and lines that no panel offers.

Dash would do this in the browser, and for that send all pages' layouts with every page's HTML.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dash.development.base_component import Component

from app.shell import ids
from app.shell.app import App
from app.shell.page import Page
from app.shell.props import components
from app.shell.static import OF_PAGES


def check(app: App, layouts: Sequence[tuple[Page, Any]]) -> Mapping[str, Component]:
    """Return every component by its id. Raises ValueError that names every fault, so that none has to be looked for."""
    everything = [each for layout in (app.layout, *(layout for _, layout in layouts)) for each in components(layout)]
    counts = Counter(each.id for each in everything)
    faults = [f"the id {name!r} is given {count} times" for name, count in counts.items() if count > 1]
    by_id = {each.id: each for each in everything}
    for callback in app._callback_list:
        faults += _faults(callback, by_id)
    faults += _unplaced(app.wiring.listened, by_id)
    faults += _missing_functions(app)
    for page, layout in layouts:
        offered = {ids.exporting(each.id) for each in components(layout) if each.id.endswith(ids.export("", "python"))}
        faults += _unanswered(page, offered)
    if faults:
        raise ValueError("The app's callbacks do not fit its layouts:\n  " + "\n  ".join(dict.fromkeys(faults)))
    return by_id


def _faults(callback: Mapping[str, Any], by_id: Mapping[str, Component]) -> Iterator[str]:
    places = [(entry["id"], entry["property"]) for entry in (*callback["inputs"], *callback["state"])]
    if not callback["no_output"]:
        # `id.property`, or `..id.property...id.property..`; a property that others set too has `@` and more behind it.
        outputs = callback["output"].removeprefix("..").removesuffix("..").split("...")
        places += [(name, prop.partition("@")[0]) for name, _, prop in (output.rpartition(".") for output in outputs)]
    yield from _unplaced(places, by_id)


def _unplaced(places: Iterable[Any], by_id: Mapping[str, Component]) -> Iterator[str]:
    for name, prop in places:
        component = by_id.get(name)
        if component is None:
            yield f"a callback names {name!r}, which is in no layout"
        elif not _has(component, prop):
            yield f"a callback names {name}.{prop}, and a {type(component).__name__} has no such property"


def _has(component: Component, prop: str) -> bool:
    if prop in component.available_properties:
        return True
    return any(prop.startswith(prefix) for prefix in component.available_wildcard_properties or ())


def _unanswered(page: Page, offered: set[str]) -> Iterator[str]:
    """Yield panels whose "Python for this view" nothing writes, and lines that no panel offers."""
    answered = set(page.python.panels) if page.python else set()
    for panel in sorted(offered - answered):
        yield f"{panel} offers Python for its view, which the python of the page {page.name} does not write"
    for panel in sorted(answered - offered):
        yield f"the python of the page {page.name} writes {panel}, which does not offer it"


def _missing_functions(app: App) -> Iterator[str]:
    scripts = {page.name: page.script for page in app.pages} | OF_PAGES
    for script, function in app.wiring.called:
        path = scripts.get(script)
        if script != "shell" and (path is None or not re.search(rf"\b{function}\b\s*[:(]", path.read_text("utf-8"))):
            yield f"the page {script} calls {function} in the browser, and its script has no such function"
