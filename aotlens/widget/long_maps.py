"""The maps of all heads on a long prompt: a byte a block of entries, and tiles of one head in finer blocks.

A block is shown by its entry of the largest magnitude, so that no entry is lost between pixels. Steps and scales are
those of maps.py: of each head one for attention to position 0, and one for all other keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from aotlens.heads import BlockMaxima
from aotlens.plots.attention import to_levels
from aotlens.plots.colours import Scale
from aotlens.widget.maps import facts

#: Blocks a side of a tile.
TILE = 512
#: Bytes of the blocks of all heads, and blocks a side of a head's map, at most.
_GRID_BYTES, _GRID_SIDE = 3_000_000, 256


def grid_block(n_layers: int, n_heads: int, n_pos: int) -> int:
    """Return the entries a side of a block of the maps of all heads, which have 3 MB together at most."""
    side = max(1, min(_GRID_SIDE, math.isqrt(_GRID_BYTES // (n_layers * n_heads))))
    return -(-n_pos // side)


@dataclass(frozen=True, kw_only=True, eq=False)
class LongMaps:
    """Block maxima of every head, and what stands at each position."""

    maxima: BlockMaxima
    """`[layer, head, row, column]`, as `LongPatterns.maxima` gives them."""
    str_tokens: Sequence[str]
    causal: bool
    """Whether a query sees earlier keys only."""
    window: int | None = None
    """The number of keys that a query sees, its own among them; None for all."""
    quantity: str = "attention"
    token_ids: Sequence[int] = ()
    name: str = ""

    @cached_property
    def _tops(self) -> Float[np.ndarray, "layer head two"]:
        """The largest magnitude of position 0 as a key, and of the other keys; 1 where there is nothing."""
        tops = np.stack([np.abs(self.maxima.first).max(-1), np.abs(self.maxima.rest).max((-2, -1))], -1)
        return np.where(tops > 0, tops, np.float32(1))

    @property
    def _scale(self) -> Scale:
        return "diverging" if self.maxima.signed else "sequential"

    @property
    def arrays(self) -> list[UInt8[np.ndarray, ...]]:
        """Return the blocks of keys 1 and later as steps, and those of key 0: what `pack` takes beside `header`."""
        return self._steps(self.maxima, self._tops[..., :1], self._tops[..., 1:, None])

    @property
    def header(self) -> dict[str, Any]:
        """Return the facts about the entries, the colours of both themes, and the sizes of blocks and tiles."""
        of_all = facts(
            self.maxima.rest.shape[:2], self._tops, self._scale, self.quantity, self.str_tokens, self.token_ids,
            masks=0, head=(0, 0), name=self.name,
        )  # fmt: skip
        return {**of_all, "block": self.maxima.block, "causal": self.causal, "window": self.window, "tile": TILE}

    def tile(self, head: tuple[int, int], part: BlockMaxima) -> list[UInt8[np.ndarray, ...]]:
        """Return blocks of one head as steps of its scales: those of keys 1 and later, and those of key 0."""
        return self._steps(part, *self._tops[head])

    def _steps(self, part: BlockMaxima, first: Any, rest: Any) -> list[UInt8[np.ndarray, ...]]:
        return [to_levels(values / top, 1.0, self._scale) for values, top in ((part.rest, rest), (part.first, first))]
