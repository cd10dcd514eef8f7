"""Whether heads come again more in models of one kind than of another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64

from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

#: Models of a kind below which their spread is not known.
LEAST_MODELS = 3


@dataclass(frozen=True, kw_only=True, eq=False)
class KindComparison(Result):
    """The comparison of how much heads come again in the models of two kinds."""

    kinds: tuple[str, str]
    tests: tuple[tuple[str, str], ...]
    first: Float64[np.ndarray, "test first"]
    """The mean of each model of the first kind over the others of its kind, less that of permuted heads."""
    second: Float64[np.ndarray, "test second"]
    means: Float64[np.ndarray, "test 2"]
    """The means of both kinds as they are. Kinds differ in what permuted heads give, so that these say little."""
    p: Float64[np.ndarray, " test"]
    """Two-sided, of `first` and `second` (`Universality.compare_kinds`), each test by itself."""

    @property
    def headline(self) -> str:
        excess = f"{self.first[0].mean():+.3f} and {self.second[0].mean():+.3f} above permuted heads"
        p = f"p = {self.p[0]:.2g}"
        verdict = "not tested: too few models, or pairs lack the evidence" if math.isnan(self.p[0]) else p
        verdict = f"undecided ({p})" if self.p[0] > 0.05 else verdict
        matched, tested = self.tests[0]
        return f"{self.kinds[0]} and {self.kinds[1]}, matched by {matched}, {tested}: {excess}, {verdict}"

    def to_frame(self) -> pd.DataFrame:
        """Return a row a test and kind: `matched`, `tested`, `kind`, the `observed` mean, its `excess` over permuted
        heads, and the test's `p`."""
        import pandas as pd

        rows = [
            (*test, kind, self.means[i, j], models[i].mean(), self.p[i])
            for i, test in enumerate(self.tests)
            for j, (kind, models) in enumerate(zip(self.kinds, (self.first, self.second), strict=True))
        ]
        return pd.DataFrame(rows, columns=["matched", "tested", "kind", "observed", "excess", "p"])


def kinds_differ(pairs: Float64[np.ndarray, "model model"], n_first: int) -> float:
    """Return the two-sided p of the difference of both kinds' means over their own pairs of models; NaN where one is
    not finite, and for kinds of fewer than three models.

    Welch's t of pseudo-values: with U the mean over a kind's pairs and U₋ᵢ that without model i, n U − (n − 1) U₋ᵢ are
    nearly independent and have the mean U. Pairs across the kinds do not count, so that unlike kinds may be less alike
    in whatever way. Source: Arvesen (1969), the jackknife of U-statistics.
    """
    from scipy.stats import ttest_ind

    values = []
    for own in np.split(np.arange(len(pairs)), [n_first]):
        n, within = len(own), pairs[np.ix_(own, own)].copy()
        np.fill_diagonal(within, 0)
        if n < LEAST_MODELS or not np.isfinite(within).all():
            return math.nan
        without = (within.sum() - 2 * within.sum(1)) / ((n - 1) * (n - 2))
        values.append(within.sum() / (n - 1) - (n - 1) * without)
    if all(np.ptp(each) < 1e-12 for each in values):
        return math.nan  # no spread to compare with
    return float(ttest_ind(*values, equal_var=False).pvalue)
