"""The maps of all heads on one prompt, as the browser draws them without a server: one byte per entry, or on a long
prompt one byte per block of entries, with tiles of one head in finer blocks.

An entry is one of 255 steps up to a largest magnitude, which is kept next to it. Each head has two of those, one for
attention to position 0, which often drowns the rest, and one for all other keys, so that an entry is right to half a
step of its own scale: 0.002 of the largest one, or 0.004 of values with a sign. A block is drawn by its entry of the
largest magnitude, so that no entry is lost between pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, UInt8

from aotlens.conventions import describe
from aotlens.heads import BlockMaxima
from aotlens.plots.attention import to_levels
from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET, Scale, Theme, stops
from aotlens.plots.primitives import glyphs, is_whitespace

#: Colours of small text, and of what lies under text, so that it can be read.
_SOFT: dict[Theme, dict[str, str]] = {
    "light": {"quiet": "#59616b", "lock-ink": "#b34a00", "hot": "#7fb6e2", "cold": "#f0b27a"},
    "dark": {"quiet": "#a3a9b0", "lock-ink": "#f0904a", "hot": "#1f5f99", "cold": "#8a4d1d"},
}


@dataclass(frozen=True, kw_only=True)
class Strip:
    """Positions that are patches of a picture, which lie over it in place of a line of tokens."""

    columns: int
    """Patches side by side."""
    n_before: int
    """Positions before the first patch, such as [CLS]."""
    picture: str
    """The picture as a data URI."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadMaps:
    """`[query, key]` of every head, what stands at each position, and which keys a query sees.

    Raises `ValueError` for sizes that do not belong together, and for entries that are seen and are not finite.
    """

    values: Float[np.ndarray, "layer head query key"]
    str_tokens: Sequence[str]
    """The string at each position; whitespace is made visible."""
    visible: Bool[np.ndarray, "mask query key"]
    """One mask for all heads, or one per head."""
    quantity: str = "attention"
    head: tuple[int, int] = (0, 0)
    """The head that is shown large at first."""
    strip: Strip | None = None
    token_ids: Sequence[int] = ()
    """The numbers said of each token when it is pointed at; none where positions are no tokens."""
    name: str = ""
    """The model, in titles of pictures that are saved."""

    def __post_init__(self) -> None:
        n_layers, n_heads, *square = self.values.shape
        n_pos = len(self.str_tokens)
        if square != [n_pos, n_pos] or self.visible.shape[1:] != (n_pos, n_pos):
            raise ValueError(
                f"HeadMaps: expected {n_pos} × {n_pos} entries for {n_pos} positions, got {list(self.values.shape)} "
                f"and visible {list(self.visible.shape)}."
            )
        if len(self.visible) not in (1, n_heads):
            raise ValueError(f"HeadMaps: expected 1 or {n_heads} masks, got {len(self.visible)}.")
        broken = ~np.isfinite(self.values) & self.visible[None]
        if broken.any():
            layer, head = np.argwhere(broken)[0][:2]
            raise ValueError(
                f"The {self.quantity} of head {layer}.{head} is not finite on this prompt: some weight or activation "
                "is NaN or too large. There are no maps of it."
            )
        if not (0 <= self.head[0] < n_layers and 0 <= self.head[1] < n_heads):
            raise ValueError(f"HeadMaps: expected one of {n_layers} × {n_heads} heads, got {self.head}.")

    @cached_property
    def _shown(self) -> Float[np.ndarray, "layer head query key"]:
        return np.where(self.visible[None], self.values, np.float32(0))

    @cached_property
    def _tops(self) -> Float[np.ndarray, "layer head two"]:
        """The largest magnitude of position 0 as a key, and of the other keys; 1 where there is nothing."""
        size = np.abs(self._shown)
        tops = np.stack([size[..., 0].max(-1), size[..., 1:].max((-2, -1), initial=0)], -1)
        return np.where(tops > 0, tops, np.float32(1))

    @cached_property
    def _scale(self) -> Scale:
        return "diverging" if (self._shown < 0).any() else "sequential"

    @cached_property
    def _shares(self) -> Float[np.ndarray, "layer head query key"]:
        """The entries as shares of their largest magnitude."""
        tops = np.repeat(self._tops[:, :, None, 1:], self.values.shape[-1], axis=-1)
        tops[..., 0] = self._tops[:, :, None, 0]
        return self._shown / tops

    @cached_property
    def arrays(self) -> list[UInt8[np.ndarray, ...]]:
        """The entries as steps, and the masks: what `pack` takes beside `header`."""
        return [to_levels(self._shares, 1.0, self._scale), self.visible.astype(np.uint8)]

    @property
    def finer(self) -> UInt8[np.ndarray, "layer head query key"]:
        """The distance of each entry from its step, in 254ths of a step, plus 128: an array after the others, for
        differences of two maps, of which a step would be too coarse."""
        zero, steps = (128, 127) if self._scale == "diverging" else (0, 255)
        return np.rint(128 + 254 * (zero + steps * self._shares - self.arrays[0])).astype(np.uint8)

    @cached_property
    def header(self) -> dict[str, Any]:
        """The facts about the entries, and the colours of both themes."""
        return facts(
            self.values.shape[:2], self._tops, self._scale, self.quantity, self.str_tokens, self.token_ids,
            masks=len(self.visible), head=self.head, name=self.name, strip=self.strip,
        )  # fmt: skip


def facts(
    shape: tuple[int, ...], tops: Float[np.ndarray, "layer head two"], scale: Scale, quantity: str,
    str_tokens: Sequence[str], token_ids: Sequence[int], *, masks: int, head: tuple[int, int], name: str,
    strip: Strip | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return what headers of maps of `shape` [layers, heads] say: tokens, scales, colours."""
    ids = [f" · id {number}" for number in token_ids] or [""] * len(str_tokens)
    return {
        "layers": shape[0], "heads": shape[1], "positions": len(str_tokens), "signed": scale == "diverging",
        "quantity": quantity,
        "tops": [float(top) for top in tops.ravel()],
        "tokens": [glyphs(token) for token in str_tokens],
        "titles": [
            f"{describe(token)}{id_words} · position {position}"
            for position, (token, id_words) in enumerate(zip(str_tokens, ids, strict=True))
        ],
        "spaces": [position for position, token in enumerate(str_tokens) if is_whitespace(token)],
        "masks": masks,
        "head": list(head),
        "name": name,
        "strip": None if strip is None else vars(strip),
        "themes": looks(scale),
    }  # fmt: skip


def looks(scale: Scale) -> dict[str, Any]:
    """Return the colours of both themes: those of the entries, and those of widget.css by their names there."""
    return {theme: _look(scale, theme) for theme in ("light", "dark")}


def _look(scale: Scale, theme: Theme) -> dict[str, Any]:
    return {
        "stops": list(stops(scale, theme)),
        "css": {
            "surface": BACKGROUND[theme], "ink": INK[theme], "line": QUIET[theme], "accent": LINES[theme][0],
            "lock": LINES[theme][1], **_SOFT[theme],
        },
    }  # fmt: skip


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
