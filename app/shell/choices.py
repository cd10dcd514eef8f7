"""Searchable choices of tokens (or positions, directions), the head picker, and switches of heads."""

from __future__ import annotations

from collections.abc import Iterable

import dash_mantine_components as dmc
from dash import html

from app.core.labels import Labels
from app.shell.drawn import drawn

#: The server has searched already; static/shell.js has the function.
_FILTER = {"function": "keepAll"}
#: Options of a closed list are not there, since React would render sixty of them whenever the field changes. Lists
#: without a search keep theirs: by arrow keys they open at the chosen option, which must be there by then.
_CLOSED = {"keepMounted": False}


def one_of(id: str, label: str, placeholder: str) -> dmc.Select:
    """Return one row or column; none means the one of the largest entry."""
    return dmc.Select(
        id=id, label=label, placeholder=placeholder, data=[], value=None, searchable=True, clearable=True,
        filter=_FILTER, nothingFoundMessage="Nothing like that", size="xs", className="choose-one",
        selectFirstOptionOnChange=True,  # which Enter takes
        comboboxProps=_CLOSED,
    )  # fmt: skip


def some_of(id: str, label: str, placeholder: str, most: int) -> dmc.MultiSelect:
    """Return the choice of several rows or columns; none means those of the largest entries."""
    return dmc.MultiSelect(
        id=id, label=label, placeholder=placeholder, data=[], value=[], searchable=True,
        clearable=True, maxValues=most, filter=_FILTER, nothingFoundMessage="Nothing like that", size="xs",
        hidePickedOptions=True, className="choose-some", selectFirstOptionOnChange=True,
        comboboxProps=_CLOSED,
    )  # fmt: skip


def options(labels: Labels, indices: Iterable[int]) -> list[dict[str, str]]:
    """Return options: each index once, in the given order."""
    return [{"value": str(index), "label": labels.shown(index)} for index in dict.fromkeys(indices)]


def head_picker(id: str, store: str) -> html.Div:
    """Return a place for the buttons of all heads, which the script draws from the store `ids.drawn(id)`.

    static/head_picker.js puts the head that is picked, [layer, head], into `store`; the page's script marks the
    head that is shown (`aotlens.showHead`).
    """
    return drawn(id, "pick-heads", "Heads", **{"data-store": store})


def head_switches(id: str, store: str) -> html.Div:
    """Return a place for a switch for each head, which static/view_page.js draws.

    A click ablates a head, or restores it: static/head_switches.js puts those that are ablated, [[layer, head], …] in
    order, into `store`.
    """
    return drawn(id, "switch-heads", "Heads to ablate", **{"data-switches": store})
