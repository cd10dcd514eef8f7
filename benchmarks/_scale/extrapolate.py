"""Sizes that were not measured, from the fits of single axes and, beside them, from the law alone.

**From the fits.** The cost at a target is the first axis's curve there, times what each other axis's curve grows from
its size in that series to the target's: log cost = log y₁(target) + Σ log (y_k(target) ÷ y_k(start)). This takes the
axes for separable, which they are where one product of sizes leads and not where two terms take turns. Intervals of the
axes, which were measured apart, add up as squares of their distances in logarithms.

**From the law.** The largest measured point times the law's ratio: separable or not, but only as good as its terms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks._scale.fit import Curve, fit_power
from benchmarks._scale.headline import HEADLINES, Headline
from benchmarks._scale.laws import Law
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
    """Seconds, or bytes."""
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


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A cost that was not measured, its interval, and what the law alone says."""

    value: float
    low: float
    high: float
    by_law: float
    unfitted: tuple[str, ...]
    """Axes without a fit, for which the law stands."""


def axis_fit(points: Points, headline: Headline, axis: str, figure: str) -> AxisFit:
    """The fit of one axis: of `points.clock` ("cpu" or "wall", seconds) or "bytes"."""
    least = LEAST_BYTES if figure == "bytes" else 0
    law = law_of(headline, figure)
    known = [
        (shape, float(figures[figure]))
        for shape in headline.series(axis, points.about["quick"])
        if (figures := points.measured(key_of(headline.name, shape))) is not None and figures[figure] > least
    ]
    shapes, values = [shape for shape, _ in known], [value for _, value in known]
    sizes = [getattr(shape, axis) for shape in shapes]
    laws = [law(shape) for shape in shapes]
    return AxisFit(axis=axis, shapes=shapes, values=values, curve=fit_power(sizes, values), law=fit_power(sizes, laws))


def law_of(headline: Headline, figure: str) -> Law:
    return headline.bytes if figure == "bytes" else headline.operations


def estimate(points: Points, name: str, target: Shape, figure: str) -> Estimate | None:
    """What the analysis costs at `target`, or None where no axis has a fit."""
    headline = HEADLINES[name]
    law = law_of(headline, figure)
    fits = {axis: axis_fit(points, headline, axis, figure) for axis in headline.axes}
    fitted = [axis for axis in headline.axes if fits[axis].curve is not None]
    if not fitted:
        return None
    anchor = fitted[0]
    start = headline.middle_of(anchor).on(anchor, getattr(target, anchor))
    parts = [_curve_of(fits[anchor]).log_of(getattr(target, anchor))]
    for axis in headline.axes:
        sizes = getattr(start, axis), getattr(target, axis)
        if axis in fitted[1:]:
            parts.append(_curve_of(fits[axis]).log_growth(*sizes))
        elif axis != anchor:
            growth = float(np.log(law(target) / law(target.on(axis, sizes[0]))))
            parts.append((growth, growth, growth))
    middle, low, high = np.array(parts).T
    total = middle.sum()
    reach = [np.sqrt(((end - middle) ** 2).sum()) for end in (low, high)]
    largest, value = largest_point(points, headline, figure, law)
    return Estimate(
        value=float(np.exp(total)), low=float(np.exp(total - reach[0])), high=float(np.exp(total + reach[1])),
        by_law=value * law(target) / law(largest),
        unfitted=tuple(axis for axis in headline.axes if axis not in fitted),
    )  # fmt: skip


def _curve_of(fit: AxisFit) -> Curve:
    assert fit.curve is not None
    return fit.curve


def largest_point(
    points: Points, headline: Headline, figure: str, law: Callable[[Shape], float]
) -> tuple[Shape, float]:
    """The measured point of the series at which the law is largest, and its figure."""
    known = {
        shape: float(figures[figure])
        for axis in headline.axes
        for shape in headline.series(axis, points.about["quick"])
        if (figures := points.measured(key_of(headline.name, shape))) is not None
    }
    largest = max(known, key=law)
    return largest, known[largest]
