"""The picture of docs/scale.md: seconds against size, a panel an analysis, drawn as SVG from the points alone."""

from __future__ import annotations

import html
import math

import numpy as np

from benchmarks._scale.extrapolate import AxisFit, axis_fit
from benchmarks._scale.headline import HEADLINES, Headline
from benchmarks._scale.series import Points

#: Colours from Okabe and Ito's palette, told apart by those who see no red or no green; a mark each as well.
COLOURS = {
    "vocabulary": "#0072b2", "layers": "#d55e00", "heads": "#009e73", "width": "#cc79a7", "tokens": "#6b6b6b",
}  # fmt: skip
_COLUMNS, _WIDTH, _HEIGHT = 3, 300, 215
_LEFT, _TOP, _RIGHT, _BOTTOM = 44, 26, 10, 30
_LEGEND = 34


def draw(points: Points) -> str:
    """Draw points and fitted curves; x is the size over that of the middle, both scales logarithmic."""
    panels = {}
    for name, headline in HEADLINES.items():
        fits = [axis_fit(points, headline, axis, points.clock) for axis in headline.axes]
        if fitted := [fit for fit in fits if fit.values]:
            panels[name] = fitted
    rows = -(-len(panels) // _COLUMNS)
    width, height = _COLUMNS * _WIDTH, rows * _HEIGHT + _LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="10">',
        "<title>Seconds of each analysis against the size of the model and of the prompt</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for i, (name, fits) in enumerate(panels.items()):
        corner = (i % _COLUMNS) * _WIDTH, i // _COLUMNS * _HEIGHT
        parts += _panel(HEADLINES[name], fits, corner)
    x = float(_LEFT)
    for axis, colour in COLOURS.items():
        parts.append(f'<circle cx="{x}" cy="{height - 19}" r="3" fill="{colour}"/>')
        parts.append(f'<text x="{x + 7}" y="{height - 15}" fill="#333333">{axis}</text>')
        x += 90
    key = "dots: measured; lines: a + b · size^p"
    parts.append(f'<text x="{x}" y="{height - 15}" fill="#333333">{key}</text></svg>')
    return "\n".join(parts) + "\n"


def _panel(headline: Headline, fits: list[AxisFit], corner: tuple[int, int]) -> list[str]:
    relative = [[size / _middle(headline, fit) for size in fit.sizes] for fit in fits]
    values = [value for fit in fits for value in fit.values]
    x_ends = math.log10(min(map(min, relative))), math.log10(max(map(max, relative)))
    y_ends = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    plot = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x_of(size: float) -> float:
        return corner[0] + _LEFT + plot[0] * (math.log10(size) - x_ends[0]) / max(x_ends[1] - x_ends[0], 1e-9)

    def y_of(value: float) -> float:
        return corner[1] + _TOP + plot[1] * (y_ends[1] - math.log10(value)) / max(y_ends[1] - y_ends[0], 1)

    left, bottom = corner[0] + _LEFT, corner[1] + _HEIGHT - _BOTTOM
    parts = [
        f'<text x="{left}" y="{corner[1] + 16}" font-weight="bold" fill="#222222">'
        f"{html.escape(headline.name.replace('_', ' '))}</text>",
        f'<rect x="{left}" y="{corner[1] + _TOP}" width="{plot[0]}" height="{plot[1]}" fill="none" stroke="#bbbbbb"/>',
    ]
    for power in range(y_ends[0], y_ends[1] + 1):
        y = y_of(10.0**power)
        parts.append(f'<path d="M{left},{y:.1f}h{plot[0]}" stroke="#e8e8e8"/>')
        parts.append(f'<text x="{left - 4}" y="{y + 3:.1f}" text-anchor="end" fill="#555555">{_tick(power)}</text>')
    for factor in (1 / 8, 1, 8, 64):
        if x_ends[0] - 1e-9 <= math.log10(factor) <= x_ends[1] + 1e-9:
            label = f"× {factor:g}" if factor >= 1 else "× 1/8"
            parts.append(
                f'<text x="{x_of(factor):.1f}" y="{bottom + 12}" text-anchor="middle" fill="#555555">{label}</text>'
            )
    for fit, sizes in zip(fits, relative, strict=True):
        colour = COLOURS[fit.axis]
        if fit.curve is not None:
            line = np.geomspace(sizes[0], sizes[-1], 24)
            costs = [fit.curve.at(size * _middle(headline, fit)) for size in line]
            path = " ".join(f"{x_of(a):.1f},{y_of(b):.1f}" for a, b in zip(line, costs, strict=True))
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.3"/>')
        for size, value in zip(sizes, fit.values, strict=True):
            parts.append(f'<circle cx="{x_of(size):.1f}" cy="{y_of(value):.1f}" r="2.6" fill="{colour}"/>')
    return parts


def _middle(headline: Headline, fit: AxisFit) -> int:
    """The size of an axis in the analysis's own middle."""
    return int(getattr(headline.middle, fit.axis))


def _tick(power: int) -> str:
    return f"{10**power} s" if power >= 0 else f"{10 ** (power + 3)} ms" if power >= -3 else f"{10.0**power:g} s"
