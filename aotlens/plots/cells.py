"""Texts in the cells of heat maps, black or white, whichever has more contrast with its cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float64, UInt8

from aotlens.plots.colours import Scale, Theme, lookup

_SHADES = 256


def cell_texts(
    z: Any, texts: Any, theme: Theme, *, x: Any, y: Any, low: float, high: float, scale: Scale = "sequential",
    size: int = 12,
) -> go.Scatter:  # fmt: skip
    """Return a trace with a text in the middle of each cell of a heat map of `z` between `low` and `high`, `[y, x]`.

    Black or white by WCAG's contrast ratio, which is at least 4.58; plotly's own choice between white and dark grey
    goes below 3.5 on middle blues. Pointing and clicking go through to the heat map.
    """
    z, texts = np.asarray(z, dtype=np.float64), np.asarray(texts, dtype=object)
    share = np.nan_to_num((np.clip(z, low, high) - low) / (high - low) if high > low else np.zeros_like(z))
    colours = lookup(scale, theme, _SHADES)[np.rint(share * (_SHADES - 1)).astype(int)]
    columns, rows = np.meshgrid(np.asarray(x, dtype=object), np.asarray(y, dtype=object))
    inks = np.where(luminance(colours) > _EQUAL, "#000000", "#ffffff")
    return go.Scatter(
        x=columns.ravel(), y=rows.ravel(), text=texts.ravel(), mode="text", hoverinfo="skip", showlegend=False,
        textfont={"color": inks.ravel(), "size": size}, cliponaxis=False,
    )  # fmt: skip


#: The luminance on which black and white have the same contrast: (1 + .05) ÷ (l + .05) = (l + .05) ÷ .05.
_EQUAL = (1.05 * 0.05) ** 0.5 - 0.05


def luminance(colours: UInt8[np.ndarray, "*cells 3"]) -> Float64[np.ndarray, "*cells"]:
    """Return the relative luminance of sRGB colours, 0 to 1 (WCAG 2.2)."""
    channels = colours / 255
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    luminances: Float64[np.ndarray, "*cells"] = linear @ np.array([0.2126, 0.7152, 0.0722])
    return luminances
