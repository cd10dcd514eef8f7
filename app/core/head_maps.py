"""Maps of a result's heads, in one of three quantities: packed for the widget, as numbers, as a figure for a paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from aotlens.plots import all_heads_maps
from aotlens.plots.attention import QUANTITIES
from aotlens.widget import TILE, HeadMaps, LongMaps, looks, pack
from app.core.errors import RequestError
from app.core.inference import Inference, PromptResult

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from aotlens.heads.patterns import ClearestHead

View = Literal["attention", "weighted", "scores"]


def values(result: PromptResult, view: View) -> np.ndarray:
    """Return `[layer, head, query, key]` of the quantity; scores of a fixed pattern raise RequestError."""
    _check_view(result, view)
    return result.patterns.quantity(view)


def _check_view(result: PromptResult, view: View) -> None:
    patterns = result.patterns
    if view == "scores" and (not patterns.queries if is_long(result) else patterns.scores is None):
        raise RequestError(
            f"{result.checkpoint} has a fixed pattern: no queries, no keys, and so no scores. Choose another view."
        )


def check_head(result: PromptResult, layer: int, head: int) -> None:
    """Raise RequestError for a head that the model doesn't have."""
    patterns = result.patterns
    if not (0 <= layer < patterns.n_layers and 0 <= head < patterns.n_heads):
        raise RequestError(
            f"{result.checkpoint} has no head {layer}.{head}: its layers are 0 to {patterns.n_layers - 1}, its heads "
            f"0 to {patterns.n_heads - 1}. Choose one in the grid."
        )


def _check_position(n_pos: int, position: int) -> None:
    if not 0 <= position < n_pos:
        raise RequestError(f"Position {position} isn't in this text of {n_pos} tokens; choose one of the tokens.")


def packed_maps(
    result: PromptResult, view: View, off: str, clearest: ClearestHead | None = None, *, finer: bool = False
) -> bytes:
    """Return all heads' maps in the arrays of the widget; `off` says in words which heads are off, and the header which
    head to show first and why. With `finer` steps, for differences."""
    patterns = result.patterns
    maps = HeadMaps(
        values=values(result, view), str_tokens=patterns.str_tokens, visible=patterns.visible,
        token_ids=patterns.tokens.tolist(), quantity=QUANTITIES[view], head=clearest.head if clearest else (0, 0),
        name=f"{result.checkpoint} · {off}" if off else result.checkpoint,
    )  # fmt: skip
    reason = clearest.sentence if clearest else ""
    header = {**maps.header, "key": result.key, "off": off, "reason": reason}
    if finer:
        return pack({**header, "signed_themes": looks("diverging")}, [*maps.arrays, maps.finer])
    return pack(header, maps.arrays)


def line_bytes(result: PromptResult, layer: int, head: int, view: View, position: int) -> bytes:
    """Return a token's row and column of a head's map, to the last bit: float32, NaN where a query sees nothing."""
    check_head(result, layer, head)
    _check_view(result, view)
    _check_position(result.patterns.n_pos, position)
    patterns, of_head = result.patterns, (layer, head)
    if is_long(result):
        line = patterns.rows(of_head, position, position + 1, view)[0], patterns.column(of_head, position, view)
    else:
        cells = patterns.of_head(of_head, view)
        line = cells[position], cells[:, position]
    return b"".join(part.astype("<f4").tobytes() for part in line)


def is_long(result: PromptResult) -> bool:
    """Return whether patterns of a result are computed row by row."""
    return result.logits is None


def _long_maps(inference: Inference, result: PromptResult, view: View, off: str) -> LongMaps:
    _check_view(result, view)
    patterns = result.patterns
    return LongMaps(
        maxima=inference.maxima(result, view), str_tokens=patterns.str_tokens, causal=patterns.cfg.causal,
        window=patterns.window, quantity=QUANTITIES[view], token_ids=patterns.tokens.tolist(),
        name=f"{result.checkpoint} · {off}" if off else result.checkpoint,
    )  # fmt: skip


def packed_long_maps(inference: Inference, result: PromptResult, view: View, off: str) -> bytes:
    """Return all heads' maps of a long prompt, a byte a block of entries, as `packed_maps`."""
    maps = _long_maps(inference, result, view, off)
    reason = (
        f"On {result.patterns.n_pos:,} tokens a pixel is the largest of a block of entries. Zoom in for single entries "
        "(wheel, or + and −); Why, predictions, losses and files take shorter texts."
    )
    return pack({**maps.header, "key": result.key, "off": off, "reason": reason}, maps.arrays)


def tile_bytes(
    inference: Inference, result: PromptResult, view: View, head: tuple[int, int], block: int, row: int, column: int
) -> bytes:
    """Return a tile of one head's map on a long prompt: `TILE` blocks of `block` entries a side, the tile's number down
    and across. Raises RequestError if the tile does not exist."""
    check_head(result, *head)
    n_pos, side = result.patterns.n_pos, TILE * block
    is_there = min(row, column) >= 0 and max(row, column) * side < n_pos
    if block < 1 or block & (block - 1) or block > n_pos or not is_there:
        raise RequestError(
            f"There is no tile {row}, {column} in blocks of {block} entries: blocks are 1, 2, 4, … entries a side, and "
            f"this text has {n_pos:,} tokens."
        )
    maps = _long_maps(inference, result, view, "")
    queries, keys = ((place * side, min(n_pos, (place + 1) * side)) for place in (row, column))
    part = result.patterns.maxima(block, view, head=head, queries=queries, keys=keys)
    return pack({"rows": part.rest.shape[0], "columns": part.rest.shape[1]}, maps.tile(head, part))


def all_heads_figure(result: PromptResult, view: View, hide_first: bool) -> go.Figure:
    """Draw the same as a figure for a paper, light whatever the page's theme."""
    return all_heads_maps(
        values(result, view),
        result.patterns.seen(without_first=hide_first),
        quantity=QUANTITIES[view],
        title=f"{result.checkpoint}: {QUANTITIES[view]} of every head, {result.patterns.n_pos} tokens",
    )
