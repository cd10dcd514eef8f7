"""A compiled network and its FFN over the whole range of inputs, for functions of one and of two numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from aotlens.distill.compile.bounds import WORST, adversarial_points
from aotlens.distill.compile.examples import TARGETS, Target
from aotlens.distill.compile.ffn import FeedForward
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.distill.compile.compiled import CompiledFFN

#: |t|/η at which the neighbourhood of a kink is sampled; of many kinks, less of it.
_NEAR = (0.0, 0.3, 0.6, 0.9, WORST, 1.7, 2.2, 3.0, 4.0, 5.5, 8.0, 12.0, 18.0, 27.0, 36.0)
_NEAR_MANY = (0.0, WORST, 3.0, 8.0, 36.0)
_MANY = 60
_BISECTIONS = 50
#: Points near which the largest error is looked for, besides those of a curve or surface.
_ADVERSARIAL = 400


@dataclass(frozen=True, kw_only=True, eq=False)
class Kinks(Result):
    """The kinks of an FFN of one number, where its units cross 0 within its range, from left to right."""

    x: Float[np.ndarray, " kink"]
    layer: Int[np.ndarray, " kink"]
    unit: Int[np.ndarray, " kink"]
    slope: Float[np.ndarray, " kink"]
    """The slope of the unit's pre-activation there, |dt/dx|, the steeper of both sides."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ErrorCurve(Result):
    """An FFN of one number, and its compiled network, at many x."""

    x: Float[np.ndarray, " point"]
    ffn: Float[np.ndarray, "point output"]
    model: Float[np.ndarray, "point output"]
    error: Float[np.ndarray, " point"]
    """The largest |model − ffn| of any output."""
    kinks: Kinks
    measured: float
    """The largest error found, here and at adversarial points."""
    proven: float
    """The proven bound, and the part of it that is for rounding."""
    rounding: float
    target: Float[np.ndarray, " point"] | None = None
    """The function that the FFN was fitted to, where one is named."""

    @property
    def headline(self) -> str:
        return f"the largest error found is {self.measured:.3g}, at most {self.proven:.3g} is proven"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per point: x, ffn, model (with a number where there are several outputs), error."""
        names = [""] if self.ffn.shape[1] == 1 else [f"_{output}" for output in range(self.ffn.shape[1])]
        columns = {"x": self.x}
        for output, name in enumerate(names):
            columns[f"ffn{name}"], columns[f"model{name}"] = self.ffn[:, output], self.model[:, output]
        return data_frame({**columns, "error": self.error})


@dataclass(frozen=True, kw_only=True, eq=False)
class ErrorSurface(Result):
    """The first output of an FFN of two numbers, and the compiled network's error, on a grid."""

    x: Float[np.ndarray, " side"]
    """The grid of either coordinate."""
    ffn: Float[np.ndarray, "second first"]
    model: Float[np.ndarray, "second first"]
    error: Float[np.ndarray, "second first"]
    """The largest |model − ffn| of any output that was found in the point's cell, kinks in it included."""
    kinks: Float[np.ndarray, "line end coordinate"]
    """The lines on which ReLU units of the first layer cross 0: both ends of each line."""
    measured: float
    """The largest error found, here and at adversarial points."""
    proven: float
    """The proven bound, and the part of it that is for rounding."""
    rounding: float

    @property
    def headline(self) -> str:
        return f"the largest error found is {self.measured:.3g}, at most {self.proven:.3g} is proven"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per point: x1, x2, ffn, model, error."""
        second, first = np.meshgrid(self.x, self.x, indexing="ij")
        values = {"x1": first, "x2": second, "ffn": self.ffn, "model": self.model, "error": self.error}
        return data_frame({name: value.ravel() for name, value in values.items()})


def find_kinks(ffn: FeedForward, bound: float | int) -> Kinks:
    """Find where the units of a ReLU network of one number cross 0 in [-bound, bound].

    Layer by layer: between the kinks of earlier layers a pre-activation is linear, so its zeros are exact (to
    rounding). Layers after one of SiLU units, and those themselves, have none that this finds. Raises `ValueError` for
    a network of several numbers.
    """
    if ffn.d_in != 1:
        raise ValueError(f"find_kinks: expected a network of one number, got {ffn.d_in}.")
    knots = torch.tensor([-bound, bound], dtype=torch.float64)
    kinks: list[Tensor] = []
    for layer, activation in enumerate(ffn.activations):
        if activation != "relu":
            break
        before = ffn.pre_activations(knots[:, None])[layer]
        left, right = before[:-1], before[1:]
        crosses = (left < 0) != (right < 0)
        crosses[0] |= (left[0] == 0) & (right[0] > 0)  # at the range's left end; one at its right end counts above
        interval, unit = crosses.nonzero(as_tuple=True)
        start, width = knots[:-1][interval], knots.diff()[interval]
        from_, to = left[interval, unit], right[interval, unit]
        crossings = start + width * (from_ / (from_ - to))
        slope = ((to - from_) / width).abs()
        here = torch.full_like(crossings, layer)
        kinks.append(torch.stack([crossings, here, unit.to(crossings.dtype), slope], 1))
        knots = torch.cat([knots, crossings]).unique()
    rows = torch.cat(kinks) if kinks else torch.zeros(0, 4, dtype=torch.float64)
    x, layers, units, slopes = rows[rows[:, 0].argsort(stable=True)].T.numpy()
    return Kinks(x=x, layer=layers.astype(np.int64), unit=units.astype(np.int64), slope=slopes)


@torch.no_grad()
def error_curve(compiled: CompiledFFN, n: int = 801, *, target: Target | None = None) -> ErrorCurve:
    """Compute the error at `n` equally spaced x within the bound, at every kink, and around kinks on the scale of η.

    A kink's error is as narrow as η, so an equally spaced grid alone would miss it. `target` names the function that
    the FFN was fitted to (`examples.fit`). Raises `ValueError` for an FFN of several numbers. Cost: `n` + up to 29
    points a kink (9 if there are more than 60) + some 4,000 points through the model.
    """
    bound = compiled.bound
    kinks = find_kinks(compiled.ffn, bound)
    near = np.array(_NEAR if len(kinks.x) <= _MANY else _NEAR_MANY)
    scale = np.array(compiled.etas)[kinks.layer] / np.maximum(kinks.slope, 1e-300)
    around = kinks.x[:, None] + scale[:, None] * np.concatenate([-near[:0:-1], near])
    x = np.unique(np.concatenate([np.linspace(-bound, bound, n), around.ravel().clip(-bound, bound)]))
    ffn, model = _both(compiled, torch.from_numpy(x)[:, None])
    error = np.abs(model - ffn).max(axis=1)
    fitted_to = None if target is None else TARGETS[target](torch.from_numpy(x)).numpy()
    return ErrorCurve(x=x, ffn=ffn, model=model, error=error, kinks=kinks, target=fitted_to, **_bounds(compiled, error))


@torch.no_grad()
def error_surface(compiled: CompiledFFN, side: int = 61, n_kinks: int = 3000) -> ErrorSurface:
    """Compute the error on a grid of `side` × `side` points within the bound: the largest found in each point's cell.

    Besides the grid points, the error is taken at `adversarial_points` and where a unit's pre-activation is 1.2785·η on
    a line of the grid, at which it errs most: a ridge is as narrow as η. `n_kinks` limits those points, evenly over
    units. Raises `ValueError` unless the FFN is of two numbers. Cost: `side`² + `n_kinks` + some 5,000 points through
    the model.
    """
    if compiled.ffn.d_in != 2:
        raise ValueError(f"error_surface: expected a network of two numbers, got {compiled.ffn.d_in}.")
    x = torch.linspace(-compiled.bound, compiled.bound, side, dtype=torch.float64)
    second, first = torch.meshgrid(x, x, indexing="ij")
    ffn, model = _both(compiled, torch.stack([first.flatten(), second.flatten()], 1))
    error = np.abs(model - ffn).max(axis=1).reshape(side, side)
    kinks = _kinks_on_lines(compiled, x)
    kinks = kinks[:: max(1, -(-len(kinks) // n_kinks))]
    # Where kinks cross, their errors add up.
    kinks = torch.cat([kinks, adversarial_points(compiled.ffn, compiled.etas, bound=compiled.bound, n=1000)])
    column, row = ((kinks + compiled.bound) / (2 * compiled.bound) * (side - 1)).round().to(torch.int64).T.numpy()
    np.maximum.at(error, (row, column), compiled.error(kinks).amax(1).cpu().numpy())
    shape = (side, side)
    lines = kink_lines(compiled.ffn, compiled.bound) if compiled.ffn.activations[0] == "relu" else []
    return ErrorSurface(
        x=x.numpy(), ffn=ffn[:, 0].reshape(shape), model=model[:, 0].reshape(shape), error=error,
        kinks=np.array(lines).reshape(-1, 2, 2), **_bounds(compiled, error),
    )  # fmt: skip


def _bounds(compiled: CompiledFFN, error: Float[np.ndarray, "*point"]) -> dict[str, float]:
    """The largest error found, at these points and at adversarial ones, and what is proven."""
    measured = max(float(error.max()), compiled.measured_error(n=_ADVERSARIAL))
    return {"measured": measured, "proven": compiled.proven_error, "rounding": compiled.rounding_error}


def _kinks_on_lines(compiled: CompiledFFN, x: Float[Tensor, " side"]) -> Float[Tensor, "point 2"]:
    """Points between neighbours of the grid at which a ReLU unit's pre-activation is 1.2785·η, by bisection."""
    second, first = torch.meshgrid(x, x, indexing="ij")
    grid = torch.stack([first, second], -1)  # [row, column, 2]
    pairs = [(grid[:, :-1], grid[:, 1:]), (grid[:-1], grid[1:])]
    low, high = (torch.cat([pair[end].reshape(-1, 2) for pair in pairs]) for end in (0, 1))
    points = [low[:0]]
    for layer, (activation, eta) in enumerate(zip(compiled.ffn.activations, compiled.etas, strict=True)):
        if activation != "relu":
            continue
        level = WORST * eta
        above = [compiled.ffn.pre_activations(ends)[layer] > level for ends in (low, high)]
        segment, unit = (above[0] != above[1]).nonzero(as_tuple=True)
        a, b, start = low[segment], high[segment], above[0][segment, unit]
        for _ in range(_BISECTIONS):
            middle = (a + b) / 2
            same = (compiled.ffn.pre_activations(middle)[layer].gather(1, unit[:, None])[:, 0] > level) == start
            a, b = torch.where(same[:, None], middle, a), torch.where(same[:, None], b, middle)
        points.append(a[unit.argsort(stable=True)])
    return torch.cat(points)


def _both(compiled: CompiledFFN, x: Float[Tensor, "n d_in"]) -> tuple[np.ndarray, np.ndarray]:
    return compiled.ffn(x).numpy(), compiled(x).cpu().numpy()


def kink_lines(ffn: FeedForward, bound: float | int) -> list[Float[np.ndarray, "2 2"]]:
    """Find the lines where first-layer units of an FFN of two numbers cross 0: both ends [end, coordinate] in the
    square.

    Raises `ValueError` unless the FFN is of two numbers. Lines that touch the square in one point are left out.
    """
    if ffn.d_in != 2:
        raise ValueError(f"kink_lines: expected a network of two numbers, got {ffn.d_in}.")
    lines = []
    for (a, b), c in zip(ffn.weights[0].T.tolist(), ffn.biases[0].tolist(), strict=True):
        ends = set()
        for side in (-bound, bound):
            if a and abs(first := -(b * side + c) / a) <= bound:
                ends.add((first, side))
            if b and abs(second := -(a * side + c) / b) <= bound:
                ends.add((side, second))
        if len(ends) > 1:
            lines.append(np.array([min(ends), max(ends)]))
    return lines


def gate_curve(
    eta: float | int, *, reach: float | int, n: int = 401
) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]:
    """Return t in [-reach, reach], and the softmax weight of a token that scores itself 0 and the auxiliary token −t/η.

    That is sigmoid(t/η); t times it is η·SiLU(t/η). Besides `n` equally spaced t, as many within 8η of 0.
    """
    near = np.linspace(-1, 1, n) * min(8 * eta, reach)
    t = np.union1d(np.linspace(-reach, reach, n), near)
    return t, torch.from_numpy(t / eta).sigmoid().numpy()
