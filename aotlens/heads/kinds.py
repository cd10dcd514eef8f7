"""Whether heads come again more in models of one kind than of another, by permuting which models are of which kind."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


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
    """Return the two-sided p of the difference of both kinds' means over pairs, by permuting which models are of the
    first kind (`scipy.stats.permutation_test`); NaN where a pair is."""
    from scipy.stats import permutation_test

    means = means.copy()
    np.fill_diagonal(means, 0)
    if not np.isfinite(means).all():
        return math.nan

    def within(models: np.ndarray) -> Any:
        """Average over the pairs of some models, `[..., model]`."""
        n = models.shape[-1]
        return means[models[..., :, None], models[..., None, :]].sum((-2, -1)) / (n * (n - 1))

    kinds = np.split(np.arange(len(means)), [n_first])
    # Less likeness between the kinds than within them is no difference of the kinds.
    across = np.ix_(*kinds)
    more = (within(kinds[0]) + within(kinds[1])) / 2 - means[across].mean()
    means[across] += more
    means.T[across] += more
    test = permutation_test(
        kinds, lambda a, b, axis: within(a) - within(b), vectorized=True, n_resamples=9_999,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    return float(test.pvalue)
