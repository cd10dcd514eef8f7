"""The maps of all heads on one prompt, as the browser draws them without a server: a byte an entry.

An entry is one of 255 steps up to the largest magnitude of its head, which is kept beside it, so that what the page
says of an entry is right to half a step: 0.002 of that largest one, or 0.004 of values with a sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from aotlens.plots.attention import to_levels
from aotlens.plots.colours import BACKGROUND, INK, LINES, QUIET, QUIET_INK, Scale, stops
from aotlens.plots.labels import glyphs


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
    """What stands at each position; whitespace is made visible."""
    visible: Bool[np.ndarray, "mask query key"]
    """One mask for all heads, or one per head."""
    quantity: str = "attention"
    head: tuple[int, int] = (0, 0)
    """The head that is shown large at first."""
    strip: Strip | None = None

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

    @property
    def arrays(self) -> list[np.ndarray]:
        """The entries as steps, and the masks: what `packed` takes beside `header`."""
        shown = np.where(self.visible[None], self.values, np.float32(0))
        scale: Scale = "diverging" if (shown < 0).any() else "sequential"
        steps = [
            to_levels(each, float(np.abs(each).max()) or 1.0, scale) for each in shown.reshape(-1, *shown.shape[2:])
        ]
        return [np.stack(steps), self.visible.astype(np.uint8)]

    @property
    def header(self) -> dict[str, Any]:
        """What is said of the entries, and the colours of both themes."""
        shown = np.where(self.visible[None], self.values, np.float32(0))
        signed = bool((shown < 0).any())
        scale: Scale = "diverging" if signed else "sequential"
        n_layers, n_heads, n_pos = self.values.shape[:3]
        return {
            "layers": n_layers, "heads": n_heads, "positions": n_pos, "signed": signed, "quantity": self.quantity,
            "tops": [float(top) or 1.0 for top in np.abs(shown).max((-2, -1)).ravel()],
            "tokens": [glyphs(token) for token in self.str_tokens],
            "masks": len(self.visible),
            "head": list(self.head),
            "strip": None if self.strip is None else vars(self.strip),
            "themes": {
                theme: {
                    "stops": list(stops(scale, theme)), "background": BACKGROUND[theme], "ink": INK[theme],
                    "quiet": QUIET[theme], "quietInk": QUIET_INK[theme], "mark": LINES[theme][1],
                }
                for theme in ("light", "dark")
            },
        }  # fmt: skip
