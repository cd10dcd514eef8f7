"""What of a circuit is shown: a map of some rows and columns, the whole in blocks, one block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aotlens.plots import Theme, matrix_map
from app.core.errors import RequestError
from app.core.labels import Labels
from app.pages.circuits import words
from app.pages.circuits.address import MAX_CHOSEN, Statistic
from app.pages.circuits.service import Choice, Circuits, Ends, Shown

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from aotlens.circuits import Overview, TopEntries

    #: Entries, and what they are relative to their rows.
    Listed = tuple[TopEntries, np.ndarray]


@dataclass(frozen=True, kw_only=True, eq=False)
class MapView:
    """Entries of some rows and columns."""

    shown: Shown
    rows: Sequence[int]
    columns: Sequence[int]
    values: np.ndarray

    block: tuple[int, int] | None = None
    """The block of the whole that this is, if it is one."""

    def figure(self, theme: Theme) -> go.Figure:
        """The heat map. `layout.meta` names its rows and columns, for clicks."""
        shown = self.shown
        figure = matrix_map(
            self.values,
            [shown.rows.short(row) for row in self.rows],
            [shown.columns.short(column) for column in self.columns],
            quantity=words.quantity(shown),
            row_title=words.row_role(shown),
            column_title=words.column_role(shown),
            theme=theme,
        )
        meta = {
            "name": shown.choice.name,
            "rows": list(self.rows),
            "row_names": [shown.rows.shown(row) for row in self.rows],
            "columns": list(self.columns),
            "column_names": [shown.columns.shown(column) for column in self.columns],
            "block": self.block,
        }
        figure.layout.meta = meta
        return figure


@dataclass(frozen=True, kw_only=True, eq=False)
class OverviewView:
    """The whole matrix in blocks."""

    shown: Shown
    overview: Overview

    @property
    def quantity(self) -> str:
        """What a block's number is."""
        unit = words.quantity(self.shown)
        return unit if self.overview.statistic == "extreme" else f"{unit}, mean"

    @property
    def caption(self) -> str:
        """What a pixel is."""
        found = self.overview
        if found.row_size == found.column_size == 1:
            return f"Every one of the {found.n_rows:,} × {found.n_columns:,} entries."
        kept = "its entry largest in size, with its sign" if found.statistic == "extreme" else "its mean"
        return (
            f"A pixel is a block of {found.row_size} × {found.column_size} of the {found.n_rows:,} × "
            f"{found.n_columns:,} entries, shown by {kept}."
        )

    def figure(self, theme: Theme) -> go.Figure:
        """The heat map; `layout.meta` has the blocks' sizes, for clicks."""
        found, shown = self.overview, self.shown
        figure = matrix_map(
            found.values,
            [_range_label(shown.rows, found.rows(block)) for block in range(found.values.shape[0])],
            [_range_label(shown.columns, found.columns(block)) for block in range(found.values.shape[1])],
            quantity=self.quantity,
            row_title=_by_id(words.row_role(shown), shown.rows),
            column_title=_by_id(words.column_role(shown), shown.columns),
            theme=theme,
        )
        name = f"{shown.choice.name} · {found.statistic} of blocks"
        figure.layout.meta = {"name": name, "row_size": found.row_size, "column_size": found.column_size}
        return figure


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockView:
    """One block of the whole: its entries, or those of the rows and columns where it is largest."""

    map: MapView
    block: tuple[int, int]
    caption: str
    listed: Listed


def entries(circuits: Circuits, choice: Choice, rows: Iterable[int] = (), columns: Iterable[int] = ()) -> MapView:
    """The map of the given rows and columns; where there are none, of those of the largest entries."""
    shown = circuits.circuit(choice)
    limit = circuits.settings.map_tokens
    at_rows, at_columns = list(dict.fromkeys(rows)), list(dict.fromkeys(columns))
    _check(at_rows, shown.rows)
    _check(at_columns, shown.columns)
    if not at_rows and at_columns:
        at_rows = _first(circuits, shown, at_columns, limit, of_rows=True)
    elif at_rows and not at_columns:
        at_columns = _first(circuits, shown, at_rows, limit, of_rows=False)
    elif not at_rows:
        ends = circuits.top(choice)
        order = by_size(ends)
        at_rows = _ordered(distinct(order.rows.tolist(), limit), shown.rows)
        at_columns = _ordered(distinct(order.columns.tolist(), limit), shown.columns)
    return MapView(shown=shown, rows=at_rows, columns=at_columns, values=circuits.values(choice, at_rows, at_columns))


def overview(circuits: Circuits, choice: Choice, statistic: Statistic) -> OverviewView:
    """The whole matrix in blocks."""
    return OverviewView(shown=circuits.circuit(choice), overview=circuits.overview(choice, statistic))


def block(circuits: Circuits, choice: Choice, at: Sequence[int] | None) -> BlockView:
    """A block of the whole; None, or one that isn't there: the one with the largest entry."""
    shown, whole = circuits.circuit(choice), circuits.overview(choice, "extreme")
    inside = at is not None and all(0 <= int(i) < n for i, n in zip(at, whole.values.shape, strict=True))
    here = (int(at[0]), int(at[1])) if at is not None and inside else whole.extreme_block()
    limit = circuits.settings.map_tokens
    exactly = whole.rows(here[0]), whole.columns(here[1])
    # A block of one entry, or few, is shown with what is around it.
    rows = _around(exactly[0], limit, shown.rows.n)
    columns = _around(exactly[1], limit, shown.columns.n)
    ends = circuits.block(choice, rows, columns)
    order = by_size(ends)
    at_rows, at_columns = (
        list(span) if len(span) <= limit else sorted(distinct(best.tolist(), limit))
        for span, best in ((rows, order.rows), (columns, order.columns))
    )
    values = circuits.values(choice, at_rows, at_columns)
    view = MapView(shown=shown, rows=at_rows, columns=at_columns, values=values, block=here)
    where = "the block of the largest entry" if exactly == (rows, columns) else "around the largest entry"
    full = len(at_rows) == len(rows) and len(at_columns) == len(columns)
    caption = (
        f"Rows {_span(rows)}, columns {_span(columns)}{'' if inside else f', {where}'}. "
        f"{'All of its entries' if full else 'Its rows and columns with the largest entries'}; below, by size."
    )
    return BlockView(map=view, block=here, caption=caption, listed=(order, relative_by_size(ends)))


def by_size(ends: Ends) -> TopEntries:
    """Both ends as one list, largest in magnitude first."""
    values, rows, columns, _ = _merged(ends)
    return ends.largest._replace(values=values, rows=rows, columns=columns)


def relative_by_size(ends: Ends) -> np.ndarray:
    """What `by_size` lists, relative to its rows."""
    return _merged(ends)[3]


def distinct(indices: Iterable[int], n: int) -> list[int]:
    """The first `n` different ones."""
    return list(dict.fromkeys(indices))[:n]


def _merged(ends: Ends):  # type: ignore[no-untyped-def]
    import torch

    both = [torch.cat(pair) for pair in zip(ends.largest, ends.smallest, strict=True)]
    relative = np.concatenate([ends.largest_relative, ends.smallest_relative])
    order = both[0].abs().argsort(descending=True, stable=True)
    # A small block's two ends overlap.
    places = both[1] * (int(both[2].max()) + 1) + both[2]
    seen: set[int] = set()
    kept = [i for i in order.tolist() if not (int(places[i]) in seen or seen.add(int(places[i])))]  # type: ignore[func-returns-value]
    return both[0][kept], both[1][kept], both[2][kept], relative[kept]


def _first(circuits: Circuits, shown: Shown, given: Sequence[int], limit: int, *, of_rows: bool) -> list[int]:
    """Where the given lines have their largest entries, a few of each."""
    look = circuits.column if of_rows else circuits.row
    each = max(1, -(-limit // len(given)))
    found: list[int] = []
    for line in given:
        order = by_size(look(shown.choice, line))
        found += (order.rows if of_rows else order.columns)[:each].tolist()
    return distinct(found, max(limit, min(len(given), MAX_CHOSEN)))


def _check(indices: Sequence[int], labels: Labels) -> None:
    wrong = [index for index in indices if not 0 <= index < labels.n]
    if wrong:
        raise RequestError(f"There is no {labels.of} {wrong[0]} here: they go from 0 to {labels.n - 1}. Take it out.")


def _range_label(labels: Labels, span: range) -> str:
    """`16–31`, or one row's index and name. Begins with the first index, which a click reads."""
    return _span(span) if len(span) > 1 or labels.texts is None else f"{span[0]} {labels.shown(span[0])}"


def _ordered(indices: list[int], labels: Labels) -> list[int]:
    """Positions and the like have an order; tokens stay in that of their entries."""
    return indices if labels.of == "token" else sorted(indices)


def _by_id(role: str, labels: Labels) -> str:
    return f"{role}, by id" if labels.of == "token" else role


def _around(span: range, size: int, n: int) -> range:
    """The span, or, if it is less than half of `size`, so many of `n` with it in their middle."""
    if len(span) >= size // 2:
        return span
    start = min(max(0, (span[0] + span[-1] + 1 - size) // 2), max(0, n - size))
    return range(start, min(n, start + size))


def _span(span: range) -> str:
    return f"{span[0]}–{span[-1]}" if len(span) > 1 else f"{span[0]}"
