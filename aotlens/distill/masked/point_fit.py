"""A ReLU network of 3n units through n points (Lemma H.4 of *nonlinearity*)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_seed
from aotlens.distill.compile.ffn import FeedForward
from aotlens.distill.tensors import require_tensors
from aotlens.results import Result

_DIRECTIONS = 256


@dataclass(frozen=True, kw_only=True, eq=False)
class PointFit(Result):
    """f(x) = Σ_i y_i I_i(x), I_i a triangle of height 1 over v·x_i."""

    ffn: FeedForward
    """One hidden layer of 3n ReLU units; `compile_ffn` takes it."""
    direction: Float[Tensor, " d"]
    """The unit vector v."""
    sharpness: float
    """K: the triangles reach 1/K to both sides."""
    gap: float
    """The least |v·x_i − v·x_j|."""
    errors: Float[Tensor, " n"]
    """|f(x_i) − y_i| in float64: rounding, since in exact arithmetic it is 0."""

    condition: float
    """K · largest |v·x_i|: how many times larger a relative error of v·x becomes as one of a triangle's height."""

    @property
    def headline(self) -> str:
        return f"{len(self.errors)} points within {float(self.errors.max()):.2g}"

    def __call__(self, x: Float[Tensor, "m d"]) -> Float[Tensor, " m"]:
        """The fitted network's output f(x), in float64."""
        return self.ffn(x.to(torch.float64))[:, 0]


def point_fit(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, " value"],
    *,
    direction: Float[Tensor, " d_direction"] | None = None,
    seed: int = 0,
) -> PointFit:
    """Return a network with f(x_i) = y_i for n distinct points (Lemma H.4).

    Along a unit vector v on which the points differ, with K > 2 / min |v·(x_i − x_j)|:

        I_i(x) = σ(K v·(x − x_i) − 1) − 2σ(K v·(x − x_i)) + σ(K v·(x − x_i) + 1)

    is 1 at x_i and 0 at all other points; f = Σ y_i I_i has 3n units. `direction` gives v; otherwise the one of 256
    random ones (Lemma H.1: most are good) that separates the points best.

    **Conditioning.** K·|v·x| is about 2 · spread / gap, and the gap of n random numbers is about spread / n². Each of
    the 3n units rounds by some 1e-16 of K·|v·x|, so errors grow about as n^2.5 · |y| · 1e-16.

    Raises `ValueError` for other shapes, for equal points (which ones), for points that no direction separates in
    float64, and for numbers that are not finite.
    Cost: O(n²) numbers to evaluate at all points, O(n (log n + d)) a direction.
    """
    require_tensors(x=x, y=y)
    x, y = (t.detach().to("cpu", torch.float64) for t in (x, y))
    if x.ndim != 2 or y.ndim != 1 or 0 in x.shape:
        raise ValueError(f"expected points [n, d] and values [n], got {list(x.shape)} and {list(y.shape)}.")
    if len(x) != len(y):
        raise ValueError(f"expected as many values as points, got {len(x)} points, {len(y)} values.")
    if not (x.isfinite().all() and y.isfinite().all()):
        raise ValueError("expected finite points and values.")
    _refuse_equal(x)
    if direction is None:
        generator = torch.Generator().manual_seed(require_seed(seed))
        candidates = torch.randn(_DIRECTIONS, x.shape[1], generator=generator, dtype=torch.float64)
    else:
        candidates = direction.to("cpu", torch.float64)[None]
        if direction.shape != x.shape[1:] or not 0 < candidates.norm() < math.inf:
            raise ValueError(f"direction: expected {x.shape[1]} finite numbers, not all 0, got {direction.tolist()}.")
    candidates = candidates / candidates.norm(dim=1, keepdim=True)
    gaps = torch.stack([least_gap(x @ v) / (x @ v).abs().max().clamp_min(1e-300) for v in candidates])
    v = candidates[gaps.argmax()]
    projected = x @ v
    gap, largest = float(least_gap(projected)), float(projected.abs().max())
    rounding = (x.shape[1] + 2) * 2.0**-53 * float((x.abs() @ v.abs()).max())
    if gap <= 4 * rounding:
        pair = sorted(projected.argsort()[projected.sort().values.diff().argmin() :][:2].tolist())
        raise ValueError(f"points {pair[0]} and {pair[1]} are not separated by any direction tried, in float64.")
    sharpness = 2 / gap * (1 + 2**-20) if gap < math.inf else 1.0
    if not math.isfinite(sharpness * max(largest, 1.0)):
        raise ValueError(f"the points are only {gap:.1g} apart along v: K = 2/{gap:.1g} is beyond float64.")
    centre = sharpness * projected
    biases = torch.stack([-centre - 1, -centre, -centre + 1], 1).flatten()
    heights = torch.stack([y, -2 * y, y], 1).view(-1, 1)
    ffn = FeedForward(
        weights=((sharpness * v)[:, None].expand(-1, len(biases)).contiguous(), heights),
        biases=(biases, torch.zeros(1, dtype=torch.float64)),
        activations=("relu",),
    )
    parts = zip(x.split(512), y.split(512), strict=True)
    errors = torch.cat([(ffn(rows)[:, 0] - values).abs() for rows, values in parts])
    return PointFit(
        ffn=ffn, direction=v, sharpness=sharpness, gap=gap, errors=errors, condition=sharpness * largest
    )  # fmt: skip


def least_gap(values: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch"]:
    """Return the least distance of two of the n values; infinity for one value."""
    if values.shape[-1] < 2:
        return torch.full(values.shape[:-1], math.inf, dtype=values.dtype)
    return values.sort(-1).values.diff(dim=-1).amin(-1)


def _refuse_equal(x: Tensor) -> None:
    _, group, sizes = torch.unique(x + 0.0, dim=0, return_inverse=True, return_counts=True)
    if (sizes > 1).any():
        same = (group == group[(sizes[group] > 1).nonzero()[0, 0]]).nonzero()[:2, 0].tolist()
        raise ValueError(f"points {same[0]} and {same[1]} are equal; a function has one value there.")
