"""Maps of two heads on one scale, and of their difference: entry by entry, where both panes have the same tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aotlens.plots import Theme
from aotlens.plots.attention import span_of
from app.core import head_maps
from app.core.head_maps import View
from app.pages.compare.address import Side
from app.pages.compare.service import HeadPair, Panes

if TYPE_CHECKING:
    import plotly.graph_objects as go


def pane_values(panes: Panes, pair: HeadPair, side: Side, view: View, hide_first: bool) -> np.ndarray:
    """`[query, key]` of the pane's head, NaN where nothing is shown."""
    return head_maps.head_values(panes.results[side], *getattr(pair, side), view, hide_first)


def pane_figure(
    panes: Panes, pair: HeadPair, side: Side, view: View, hide_first: bool, theme: Theme
) -> go.Figure:  # fmt: skip
    """The pane's map, on the scale of both."""
    span = span_of(*(pane_values(panes, pair, one, view, hide_first) for one in panes.results))
    drawn = (*getattr(pair, side), view, hide_first)
    return head_maps.head_figure(panes.results[side], *drawn, theme, levels=True, span=span)


def beside_left(panes: Panes, pair: HeadPair, view: View, hide_first: bool) -> np.ndarray:
    """The right head's entries at the left positions that correspond to its own, NaN at all others."""
    values = pane_values(panes, pair, "right", view, hide_first)
    n = panes.left.patterns.n_pos
    found = np.full((n, n), np.nan, dtype=values.dtype)
    here, there = np.array(panes.places, dtype=int).reshape(-1, 2).T
    found[np.ix_(here, here)] = values[np.ix_(there, there)]
    return found


def difference_values(panes: Panes, pair: HeadPair, view: View, hide_first: bool) -> np.ndarray:
    """right − left, `[query, key]` of the left text, NaN where one of them shows nothing, or nothing corresponds."""
    return beside_left(panes, pair, view, hide_first) - pane_values(panes, pair, "left", view, hide_first)


def difference_figure(panes: Panes, pair: HeadPair, view: View, hide_first: bool, theme: Theme) -> go.Figure:
    """The map of that, on a scale of its own with zero in the middle."""
    shown = difference_values(panes, pair, view, hide_first)
    least, most = span_of(shown)
    top = max(most, -least)
    (a, b), (c, d) = pair.left, pair.right
    return head_maps.map_figure(
        shown, panes.left.patterns.str_tokens, difference_of(panes, pair, view, hide_first),
        f"head {c}.{d} of {panes.right.checkpoint} − head {a}.{b} of {panes.left.checkpoint}", theme,
        levels=True, span=(-top, top) if top else None,
    )  # fmt: skip


def difference_line(panes: Panes, pair: HeadPair, view: View, hide_first: bool, position: int) -> dict[str, Any]:
    """A token's row and column of it, to the last bit."""
    whose = difference_of(panes, pair, view, hide_first)
    return head_maps.map_line(difference_values(panes, pair, view, hide_first), whose, position)


def difference_of(panes: Panes, pair: HeadPair, view: View, hide_first: bool) -> dict[str, Any]:
    """What tells a difference from another in the browser: `head_maps.map_of` with both panes in its key."""
    key = f"{panes.key}-{pair.right[0]}.{pair.right[1]}"
    return {"key": key, "layer": pair.left[0], "head": pair.left[1], "view": view, "hide_first": hide_first}
