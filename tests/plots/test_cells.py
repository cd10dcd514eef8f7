"""Texts in cells can be read on every colour of every scale."""

from __future__ import annotations

import numpy as np
import pytest

from aotlens.plots.colours import lookup
from aotlens.plots.primitives import cell_texts

LEVELS = np.linspace(-1.0, 2.0, 61)  # beyond both ends, too


def relative_luminance(colour: str) -> float:
    """WCAG's formula, channel by channel."""
    total = 0.0
    for weight, place in ((0.2126, 1), (0.7152, 3), (0.0722, 5)):
        channel = int(colour[place : place + 2], 16) / 255
        total += weight * (channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4)
    return total


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("scale", ["sequential", "diverging"])
def test_a_text_has_the_contrast_that_wcag_asks_for(scale, theme):
    trace = cell_texts([LEVELS], [["x"] * 61], theme, x=range(61), y=["row"], low=0.0, high=1.0, scale=scale)
    table = lookup(scale, theme, 256)
    for level, ink in zip(LEVELS, trace.textfont.color, strict=True):
        cell = relative_luminance("#{:02x}{:02x}{:02x}".format(*table[round(min(max(level, 0), 1) * 255)]))
        low, high = sorted([cell, relative_luminance(ink)])
        assert (high + 0.05) / (low + 0.05) >= 4.5, (level, ink)


def test_a_text_stands_in_its_own_cell():
    trace = cell_texts(
        [[0, 1], [np.nan, 0.5]], [["a", "b"], ["", "d"]], "light", x=["0", "1"], y=["p", "q"], low=0.0, high=1.0
    )
    assert list(zip(trace.x, trace.y, trace.text, strict=True))[1:4:2] == [("1", "p", "b"), ("1", "q", "d")]
    assert trace.hoverinfo == "skip"
