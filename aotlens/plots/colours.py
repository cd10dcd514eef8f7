"""Colour scales and the look of every figure, for a light and a dark page.

A sequential scale starts at the page's own background, so that nothing is nothing to see. A diverging one has the
background at zero, blue above and orange below, which colour-blind readers tell apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt8

Theme = Literal["light", "dark"]
Scale = Literal["sequential", "diverging"]

BACKGROUND: dict[Theme, str] = {"light": "#ffffff", "dark": "#242424"}
INK: dict[Theme, str] = {"light": "#25282c", "dark": "#d5d7da"}
QUIET_INK: dict[Theme, str] = {"light": "#7b828c", "dark": "#8b9198"}
QUIET: dict[Theme, str] = {"light": "#e3e6ea", "dark": "#3b3d40"}

#: Lines and bars, in the order in which they are used. Okabe and Ito's, lightened on dark.
LINES: dict[Theme, tuple[str, ...]] = {
    "light": ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#56607a"),
    "dark": ("#56b4e9", "#f0904a", "#3ecf9f", "#e39ec4", "#f0e442", "#a9b3cc"),
}

_SEQUENTIAL: dict[Theme, tuple[str, ...]] = {
    "light": ("#ffffff", "#d6e6f5", "#9cc6e6", "#559fd1", "#1f70b1", "#0a4a86", "#06264d"),
    "dark": ("#242424", "#173a5c", "#1d5b91", "#2f82c4", "#63aeea", "#a9d6fb", "#f2faff"),
}
_NEGATIVE: dict[Theme, tuple[str, ...]] = {
    "light": ("#ffffff", "#fbe0c8", "#f5b983", "#e58a3c", "#c25d10", "#8c3d04", "#4f2102"),
    "dark": ("#242424", "#54331a", "#8a4d1d", "#c06e27", "#e89a55", "#f7c697", "#fff3e6"),
}


def stops(scale: Scale, theme: Theme) -> tuple[str, ...]:
    """Return evenly spaced colours from the least to the greatest value."""
    if scale == "sequential":
        return _SEQUENTIAL[theme]
    return (*_NEGATIVE[theme][:0:-1], *_SEQUENTIAL[theme])


def colorscale(scale: Scale, theme: Theme) -> list[list[Any]]:
    """Return the scale as plotly takes it."""
    colours = stops(scale, theme)
    return [[index / (len(colours) - 1), colour] for index, colour in enumerate(colours)]


def lookup(scale: Scale, theme: Theme, n_colours: int) -> UInt8[np.ndarray, "n_colours 3"]:
    """Return the scale as a table of red, green, blue."""
    colours = np.array([_rgb(colour) for colour in stops(scale, theme)], dtype=np.float64)
    where = np.linspace(0, len(colours) - 1, n_colours)
    channels = [np.interp(where, np.arange(len(colours)), colours[:, channel]) for channel in range(3)]
    return np.stack(channels, axis=1).round().astype(np.uint8)


def base_layout(
    theme: Theme, *, xaxis: Mapping[str, Any] | None = None, yaxis: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Return layout shared by all figures: transparent, so that the panel's own background shows.

    `xaxis`, `yaxis` and `more` are added to it. A figure that is made with its whole layout takes 7 ms where one whose
    layout and axes are updated afterwards takes 43: plotly checks all of it at each update.
    """
    axis = {
        "gridcolor": QUIET[theme],
        "linecolor": QUIET[theme],
        "zerolinecolor": QUIET[theme],
        "automargin": True,
    }
    return {
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 12, "color": INK[theme]},
        "colorway": list(LINES[theme]),
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "hoverlabel": {"bgcolor": BACKGROUND[theme], "font": {"color": INK[theme]}, "bordercolor": INK[theme]},
        # Shown while a pointer is over the figure, where a legend may be: text under its buttons would be unreadable.
        "modebar": {"bgcolor": BACKGROUND[theme], "color": QUIET_INK[theme], "activecolor": INK[theme]},
        "xaxis": {**axis, **(xaxis or {})},
        "yaxis": {**axis, **(yaxis or {})},
        **more,
    }


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
