"""What the Compare page's panels save."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from app.core.files import File, csv_file
from app.core.head_maps import View
from app.pages.compare import differences
from app.pages.compare.address import Side
from app.pages.compare.captions import head_name
from app.pages.compare.service import HeadPair, Losses, Panes

if TYPE_CHECKING:
    from aotlens.heads import HeadMatching


def losses_csv(panes: Panes, losses: Losses) -> File:
    """A row a token; where the panes have other tokens, the left's, then the right's."""
    if losses.difference is not None:
        columns: dict[str, Any] = {"left": losses.left, "right": losses.right, "difference": losses.difference}
        rows = _tokens(panes.left.patterns.str_tokens, columns)
    else:
        rows = []
        for side, values in (("left", losses.left), ("right", losses.right)):
            tokens = panes.results[side].patterns.str_tokens  # type: ignore[index]
            rows += [{"pane": side, **row} for row in _tokens(tokens, {"loss": values})]
    return csv_file(f"{_stem(panes)}-losses.csv", rows)


def map_csv(panes: Panes, pair: HeadPair, side: Side, view: View, hide_first: bool) -> File:
    """One row for each query and key that is shown of a pane's head."""
    shown = differences.pane_values(panes, pair, side, view, hide_first)
    result = panes.results[side]
    name = f"{result.checkpoint}-head-{head_name(getattr(pair, side))}-{view}.csv"
    return csv_file(name, _entries(shown, result.patterns.str_tokens, view, lambda at: {}))


def difference_csv(panes: Panes, pair: HeadPair, view: View, hide_first: bool) -> File:
    """One row for each query and key that both show: left, right, and their difference."""
    left = differences.pane_values(panes, pair, "left", view, hide_first)
    right = differences.beside_left(panes, pair, view, hide_first)
    shown = differences.difference_values(panes, pair, view, hide_first)
    name = f"{_stem(panes)}-head-{head_name(pair.left)}-{head_name(pair.right)}-{view}.csv"
    both = lambda at: {"left": float(left[at]), "right": float(right[at])}  # noqa: E731
    return csv_file(name, _entries(shown, panes.left.patterns.str_tokens, "difference", both))


def pairs_csv(panes: Panes, pairs: list[HeadPair]) -> File:
    """A row a pair, with its similarity and margin where the heads are matched."""
    return csv_file(
        f"{_stem(panes)}-pairs.csv",
        [
            {"left": head_name(pair.left), "right": head_name(pair.right), **pair.cosines, "margin": pair.margin}
            for pair in pairs
        ],
    )


def similarity_csv(panes: Panes, matched: HeadMatching) -> File:
    """A row for every left and right head: each cosine, and their mean."""
    measures = {name: getattr(matched, name) for name in (*matched.measured, "similarity")}
    rows = [
        {"left": head_name(left), "right": head_name(right),
         **{name: float(values[row, column]) for name, values in measures.items()}}
        for row, left in enumerate(matched.left)
        for column, right in enumerate(matched.right)
    ]  # fmt: skip
    return csv_file(f"{_stem(panes)}-similarity.csv", rows)


def _tokens(str_tokens: tuple[str, ...], columns: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    return [
        {
            "position": position,
            "token": token,
            **{name: float(values[position]) if np.isfinite(values[position]) else None
               for name, values in columns.items()},
        }
        for position, token in enumerate(str_tokens)
    ]  # fmt: skip


def _entries(
    shown: np.ndarray, names: tuple[str, ...], column: str, also: Callable[[tuple[int, int]], dict[str, float]]
) -> list[dict[str, Any]]:
    return [
        {
            "query": query,
            "query_token": names[query],
            "key": key,
            "key_token": names[key],
            **also((query, key)),
            column: float(shown[query, key]),
        }
        for query, key in np.argwhere(~np.isnan(shown)).tolist()
    ]


def _stem(panes: Panes) -> str:
    return f"{panes.left.checkpoint}-{panes.right.checkpoint}"
