"""Sizes that were not measured, from the law with the machine's rates, and from the fits of single axes.

**From the law** (`from_law`): its terms at the target with rates fitted to all points (`rates.py`).

**From the axes** (`from_axes`): the cost at a target is the first axis's curve there, times what each other axis's
curve grows from its size in that series to the target's: log cost = log y₁(target) + Σ log (y_k(target) ÷ y_k(start)).
This takes the axes for separable, which they are where one product of sizes leads. Where terms are added, as logits to
layers, the product of the axes is too large. It is a second opinion that knows no formula. Intervals of the axes, which
were measured apart, add up as squares of distances in logarithms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks._scale.fit import Curve, fit_power
from benchmarks._scale.headline import HEADLINES, Headline
from benchmarks._scale.laws import NODES, Terms
from benchmarks._scale.point import Figures
from benchmarks._scale.rates import fit_rates
from benchmarks._scale.series import Points, key_of
from benchmarks._scale.shapes import Shape

#: Peaks below this are the allocator's pages rather than the analysis, and are not fitted.
LEAST_BYTES = 4 * 2**20
#: A law disagrees with a fit if it is outside of its interval and further from its exponent than this.
TOLERANCE = 0.15


@dataclass(frozen=True, kw_only=True, eq=False)
class AxisFit:
    """The points of one series in one figure, the curve through them, and the law's own curve at the same sizes."""

    axis: str
    shapes: list[Shape]
    values: list[float]
    """The values, in seconds or bytes."""
    curve: Curve | None
    law: Curve | None

    @property
    def sizes(self) -> list[int]:
        return [getattr(shape, self.axis) for shape in self.shapes]

    @property
    def disagrees(self) -> bool:
        """Whether the law's exponent over these sizes is not the measured one."""
        if self.curve is None or self.law is None:
            return False
        inside = self.curve.low <= self.law.exponent <= self.curve.high
        return not inside and abs(self.law.exponent - self.curve.exponent) > TOLERANCE


class Estimate(NamedTuple):
    """A cost that was not measured, and its interval."""

    value: float
    low: float
    high: float

    def needs(self, measured: float) -> float:
        """Return how much the interval must grow, in logarithms, to hold what was measured; at most 1 where it does."""
        reach = self.high / self.value if measured > self.value else self.value / self.low
        return abs(math.log(measured / self.value)) / max(math.log(reach), 1e-9)

    def widened(self, factor: float) -> Estimate:
        """Return the interval with both ends that much further away, in logarithms."""
        return Estimate(
            self.value, self.value * (self.low / self.value) ** factor, self.value * (self.high / self.value) ** factor
        )


def axis_fit(points: Points, headline: Headline, axis: str, figure: str) -> AxisFit:
    """Fit one axis: of `points.clock` ("cpu" or "wall", seconds) or "bytes"."""
    known = _measured(points, headline, axis, figure)
    shapes, values, laws = [*known], [value for value, _ in known.values()], [sum(terms) for _, terms in known.values()]
    sizes = [getattr(shape, axis) for shape in shapes]
    return AxisFit(axis=axis, shapes=shapes, values=values, curve=fit_power(sizes, values), law=fit_power(sizes, laws))


def _measured(points: Points, headline: Headline, axis: str, figure: str) -> dict[Shape, tuple[float, Terms]]:
    """The figure of every point of a series that was large enough to measure, and the law's terms there."""
    least = LEAST_BYTES if figure == "bytes" else 0
    return {
        shape: (float(figures[figure]), terms_at(headline, shape, figure, figures))
        for shape in headline.series(axis, points.about["quick"])
        if (figures := points.measured(key_of(headline.name, shape))) is not None and figures[figure] > least
    }


def terms_at(headline: Headline, shape: Shape, figure: str, figures: Figures | None = None) -> Terms:
    """Return the law's terms, with what a measured point noted of the last of them."""
    if figure == "bytes":
        return headline.byte_terms(shape)
    *terms, last = headline.operation_terms(shape)
    if headline.counted is not None and figures is not None:
        last *= figures.get(headline.counted, NODES) / NODES
    return (*terms, last)


def from_law(points: Points, name: str, target: Shape, figure: str) -> Estimate | None:
    """Estimate what the analysis costs at `target` by its law, or None for too few points."""
    headline = HEADLINES[name]
    known = {}
    for axis in headline.axes:
        known |= _measured(points, headline, axis, figure)
    rates = fit_rates(
        tuple(_with_calls(terms, shape) for shape, (_, terms) in known.items()),
        tuple(value for value, _ in known.values()),
    )
    return None if rates is None else Estimate(*rates.cost(_with_calls(terms_at(headline, target, figure), target)))


def _with_calls(terms: Terms, shape: Shape) -> Terms:
    """The law's terms, and what calls cost: at all, and for each head."""
    return (*terms, 1.0, float(shape.layers * shape.heads))


def from_axes(points: Points, name: str, target: Shape, figure: str) -> Estimate | None:
    """Estimate what the analysis costs at `target` if its axes were separable, or None where an axis has no fit."""
    headline = HEADLINES[name]
    fits = {axis: axis_fit(points, headline, axis, figure) for axis in headline.axes}
    curves = {axis: fit.curve for axis, fit in fits.items() if fit.curve is not None}
    if len(curves) < len(fits) or not curves:
        return None
    anchor, *others = headline.axes
    start = headline.middle_of(anchor)
    parts = [curves[anchor].log_of(getattr(target, anchor))]
    parts += [curves[axis].log_growth(getattr(start, axis), getattr(target, axis)) for axis in others]
    middle, low, high = np.array(parts).T
    below, above = (float(np.sqrt(((end - middle) ** 2).sum())) for end in (low, high))
    total = float(middle.sum())
    return Estimate(*np.exp([total, total - below, total + above]).tolist())
