"""Whether heads come again more in models of one kind than of another, by permuting which models are of which kind."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

#: The largest number of divisions of the models that are all tried.
_MOST_SPLITS = 20_000


@dataclass(frozen=True, kw_only=True, eq=False)
class KindComparison(Result):
    """The comparison of how much heads come again in the models of two kinds."""

    kinds: tuple[str, str]
    tests: tuple[tuple[str, str], ...]
    first: Float64[np.ndarray, "test first"]
    """The mean of each model of the first kind over the others of its kind."""
    second: Float64[np.ndarray, "test second"]
    p: Float64[np.ndarray, " test"]
    """Two-sided, by permuting the models' kinds (`Universality.compare_kinds`), each test by itself; with 3 + 3 models
    it cannot go below .1, with 5 + 5 it reaches .008."""

    @property
    def headline(self) -> str:
        means = f"{self.first[0].mean():.3f} and {self.second[0].mean():.3f}"
        p = f"p = {self.p[0]:.2g}"
        verdict = "not tested: pairs lack the evidence" if math.isnan(self.p[0]) else p
        verdict = f"undecided ({p})" if self.p[0] > 0.05 else verdict
        matched, tested = self.tests[0]
        return f"{self.kinds[0]} and {self.kinds[1]}, matched by {matched}, {tested}: {means}, {verdict}"

    def to_frame(self) -> pd.DataFrame:
        """A row a test: `matched`, `tested`, the mean of each kind, `p`."""
        import pandas as pd

        matched, tested = zip(*self.tests, strict=True)
        means = {kind: each.mean(1) for kind, each in zip(self.kinds, (self.first, self.second), strict=True)}
        return pd.DataFrame({"matched": matched, "tested": tested, **means, "p": self.p})


def kinds_differ(means: Float64[np.ndarray, "model model"], n_first: int) -> float:
    """The two-sided p of the difference of both kinds' means over pairs, by permuting which models are of the first
    kind; NaN where a pair is."""
    n = len(means)
    means = np.where(np.eye(n, dtype=bool), 0, means)
    first = np.zeros(n)
    first[:n_first] = 1
    a, b = _within(means, first[None])[:, 0]
    if not np.isfinite(a - b):
        return math.nan
    # Less likeness between the kinds than within them is no difference of the kinds.
    apart = first[:, None] != first
    means = means + apart * ((a + b) / 2 - means[apart].mean())
    if math.comb(n, n_first) <= _MOST_SPLITS:
        splits = np.zeros((math.comb(n, n_first), n))
        np.put_along_axis(splits, np.array([*itertools.combinations(range(n), n_first)]), 1, axis=1)
        drawn = 0
    else:
        splits, drawn = np.random.default_rng(0).permuted(np.tile(first, (9_999, 1)), axis=1), 1
    left, right = _within(means, splits)
    extreme = np.abs(left - right) >= abs(a - b) - 1e-12
    return float((extreme.sum() + drawn) / (len(splits) + drawn))


def _within(
    means: Float64[np.ndarray, "model model"], splits: Float64[np.ndarray, "split model"]
) -> Float64[np.ndarray, "side split"]:
    """Average over the pairs of models on either side of each split."""
    sides = np.stack([splits, 1 - splits])
    size = sides.sum(2)
    found: np.ndarray = np.einsum("ksi,ij,ksj->ks", sides, means, sides) / (size * (size - 1))
    return found
