"""The shown part of a result: one head's map, or all heads' thumbnails, in one of three quantities."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from aotlens.plots import Theme, all_heads_maps, attention_map, sprite
from aotlens.plots.attention import QUANTITIES
from aotlens.widget import HeadMaps, pack
from app.core.errors import RequestError
from app.core.inference import PromptResult

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from aotlens.heads.clearest import ClearestHead

View = Literal["attention", "weighted", "scores"]

#: Pixels a side of a thumbnail: fewer heads get larger ones.
_CELLS = ((32, 128), (72, 96))
_SMALLEST_CELL = 64


def values(result: PromptResult, view: View) -> np.ndarray:
    """Return `[layer, head, query, key]` of the quantity; scores of a fixed pattern raise RequestError."""
    _check_view(result, view)
    return result.patterns.quantity(view)


def _check_view(result: PromptResult, view: View) -> None:
    if view == "scores" and result.patterns.scores is None:
        raise RequestError(
            f"{result.checkpoint} has a fixed pattern: no queries, no keys, and so no scores. Choose another view."
        )


def check_head(result: PromptResult, layer: int, head: int) -> None:
    """Raises RequestError for a head that the model doesn't have."""
    patterns = result.patterns
    if not (0 <= layer < patterns.n_layers and 0 <= head < patterns.n_heads):
        raise RequestError(
            f"{result.checkpoint} has no head {layer}.{head}: its layers are 0 to {patterns.n_layers - 1}, its heads "
            f"0 to {patterns.n_heads - 1}. Choose one in the grid."
        )


def head_values(result: PromptResult, layer: int, head: int, view: View, hide_first: bool) -> np.ndarray:
    """Return `[query, key]` of one head, NaN where nothing is shown."""
    check_head(result, layer, head)
    _check_view(result, view)
    return result.patterns.of_head((layer, head), view, without_first=hide_first)


def head_figure(
    result: PromptResult, layer: int, head: int, view: View, hide_first: bool, theme: Theme, *, levels: bool = False
) -> go.Figure:  # fmt: skip
    """The large map of one head. `layout.meta` says whose it is, so that the browser can tell it from another's.

    With `levels`, a picture without numbers: those are in `head_line`.
    """
    shown, quantity = head_values(result, layer, head, view, hide_first), QUANTITIES[view]
    figure = attention_map(shown, result.patterns.str_tokens, quantity=quantity, theme=theme, levels=levels)
    name = f"{result.checkpoint} · head {layer}.{head} · {quantity}"
    meta = {**map_of(result, layer, head, view, hide_first), "name": name, "quantity": quantity}
    figure.layout.meta = {**(figure.layout.meta or {}), **meta}
    return figure


def map_of(result: PromptResult, layer: int, head: int, view: View, hide_first: bool) -> dict[str, Any]:
    """Return the key that tells one map from another in the browser."""
    return {"key": result.key, "layer": layer, "head": head, "view": view, "hide_first": hide_first}


def head_line(
    result: PromptResult, layer: int, head: int, view: View, hide_first: bool, position: int
) -> dict[str, Any]:
    """A token's row and column of a head's map, to the last bit: float32 in base64, NaN where nothing is shown."""
    shown = head_values(result, layer, head, view, hide_first)
    row, column = (b64encode(part.astype("<f4").tobytes()).decode() for part in _row_and_column(shown, position))
    return {**map_of(result, layer, head, view, hide_first), "position": position, "row": row, "column": column}


def _row_and_column(shown: np.ndarray, position: int) -> tuple[np.ndarray, np.ndarray]:
    if not 0 <= position < len(shown):
        raise RequestError(f"Position {position} isn't in this text of {len(shown)} tokens; choose one of the tokens.")
    return shown[position], shown[:, position]


def packed_maps(result: PromptResult, view: View, off: str, clearest: ClearestHead | None = None) -> bytes:
    """All heads' maps in the arrays of the widget; `off` says in words which heads are off, and the header which head
    to show first and why."""
    patterns = result.patterns
    maps = HeadMaps(
        values=values(result, view), str_tokens=patterns.str_tokens, visible=patterns.visible,
        token_ids=patterns.tokens.tolist(), quantity=QUANTITIES[view], head=clearest.head if clearest else (0, 0),
        name=f"{result.checkpoint} · {off}" if off else result.checkpoint,
    )  # fmt: skip
    reason = clearest.sentence if clearest else ""
    return pack({**maps.header, "key": result.key, "off": off, "reason": reason}, maps.arrays)


def line_bytes(result: PromptResult, layer: int, head: int, view: View, position: int) -> bytes:
    """A token's row and column of a head's map, to the last bit: float32, NaN where a query sees nothing."""
    shown = head_values(result, layer, head, view, hide_first=False)
    return b"".join(part.astype("<f4").tobytes() for part in _row_and_column(shown, position))


def grid_picture(result: PromptResult, view: View, hide_first: bool, theme: Theme) -> bytes:
    """A PNG of all heads: row = layer, column = head."""
    shown = values(result, view)
    n_heads = shown.shape[0] * shown.shape[1]
    cell = next((size for most, size in _CELLS if n_heads <= most), _SMALLEST_CELL)
    seen = result.patterns.seen(without_first=hide_first)
    signed = bool((np.where(seen[None], shown, 0) < 0).any())
    return sprite(shown, seen, cell=cell, scale="diverging" if signed else "sequential", theme=theme)


def all_heads_figure(result: PromptResult, view: View, hide_first: bool) -> go.Figure:
    """The same as a figure for a paper, light whatever the page's theme."""
    return all_heads_maps(
        values(result, view),
        result.patterns.seen(without_first=hide_first),
        quantity=QUANTITIES[view],
        title=f"{result.checkpoint}: {QUANTITIES[view]} of every head, {result.patterns.n_pos} tokens",
    )
