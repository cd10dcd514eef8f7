"""Searchable choices of tokens (or positions, directions)."""

from __future__ import annotations

from collections.abc import Iterable

import dash_mantine_components as dmc

from app.core.labels import Labels

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
