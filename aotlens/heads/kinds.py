"""Whether heads recur more in models of one kind than of another, and more in some layers than in others.

Of each layer, the tested evidence of its heads' pairs less what permuted heads give: a head's mean over the other
models, then the mean over the layer's heads. Bali et al. (2602.16740) find the heads of middle layers the least stable,
by patterns that are matched and compared by the same evidence. Two contrasts of layers test that:

    rise   the mean of the last half of the layers less that of the first half (a middle layer is in neither)
    dip    the mean of the layers between the first and last thirds less that of these thirds

The unit is the model: with θ₋ₘ a number without model m, its standard error is √((n − 1) ÷ n · Σ (θ₋ₘ − θ̄₋)²), the
jackknife of U-statistics (Arvesen 1969), and the interval is Student's with n − 1 degrees of freedom. On simulated
similarities of three to eight models, 95% intervals hold the truth in 93 to 100% where the models' effects are normal
or lognormal, and where each of four heads per layer forms in each model by chance. Where all heads of one layer form in
some models and not in others, and nothing else varies, they hold it in 40 to 84%.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from aotlens.results import Result
from aotlens.statistics import jackknife_error, p_text

if TYPE_CHECKING:
    import pandas as pd


#: Models of a kind below which kinds are not tested: of three of them that form a circuit by chance, p ≤ .05 comes in
#: 15% where the kinds do not differ.
LEAST_MODELS = 5
#: Splits of models into two kinds, beyond which a sample of them is drawn.
MOST_SPLITS = 2000


@dataclass(frozen=True, kw_only=True, eq=False)
class KindComparison(Result):
    """The comparison of how much heads recur in the models of two kinds."""

    kinds: tuple[str, str]
    tests: tuple[tuple[str, str], ...]
    first: Float64[np.ndarray, "test first"]
    """The mean of each model of the first kind over the others of its kind, less that of permuted heads."""
    second: Float64[np.ndarray, "test second"]
    means: Float64[np.ndarray, "test 2"]
    """The means of both kinds as they are. Kinds differ in what permuted heads give, so that these say little."""
    sizes: tuple[int, int] | None = None
    """The models of each kind; None in files from before there were any."""
    standardised: Float64[np.ndarray, "test 2"] | None = None
    """The mean excess of each kind ÷ the standard deviation of what permuted heads give, the standardised effect. Where
    the raw excess of two kinds differs and this does not, one kind's heads differ more from each other, matched or
    not. None in files from before there were any."""
    p: Float64[np.ndarray, " test"]
    """Two-sided, of `first` and `second` (`Universality.compare_kinds`), each test by itself."""

    @property
    def headline(self) -> str:
        matched, tested = self.tests[0]
        return f"{' and '.join(self.kinds)}, matched by {matched}, {tested}: {self.of(0)}"

    def of(self, test: int) -> str:
        """Say how much the heads of each kind are alike above permuted ones, by one of `tests`, and whether kinds
        differ."""
        excess = f"{self.first[test].mean():+.3f} and {self.second[test].mean():+.3f} above permuted heads"
        if self.standardised is not None:
            units = " and ".join(f"{value:.1f}" for value in self.standardised[test])
            excess += f" ({units} standard deviations of permuted heads)"
        p = self.p[test]
        if math.isnan(p):
            few = self.sizes is not None and min(self.sizes) < LEAST_MODELS
            why = f"fewer than {LEAST_MODELS} models of a kind" if few else "pairs lack the evidence, or do not vary"
            return f"{excess}, not tested: {why}"
        return f"{excess}, {p_text(p) if p <= 0.05 else f'undecided ({p_text(p)})'}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per test and kind: `matched`, `tested`, `kind`, the `observed` mean, its `excess` over
        permuted heads, that `standardised` by their standard deviation, and the test's `p`."""
        import pandas as pd

        units = np.full_like(self.means, np.nan) if self.standardised is None else self.standardised
        rows = [
            (*test, kind, self.means[i, j], models[i].mean(), units[i, j], self.p[i])
            for i, test in enumerate(self.tests)
            for j, (kind, models) in enumerate(zip(self.kinds, (self.first, self.second), strict=True))
        ]
        return pd.DataFrame(rows, columns=["matched", "tested", "kind", "observed", "excess", "standardised", "p"])


def compared(
    kinds: tuple[str, str],
    tests: tuple[tuple[str, str], ...],
    all_kinds: Sequence[str],
    pair_excess: Float64[np.ndarray, "test model model"],
    pair_means: Float64[np.ndarray, "test model model"],
    null_std: Float64[np.ndarray, "test kind"] | None,
) -> KindComparison:
    """Compare the models of two kinds, at least two of each, by every test (`Universality.compare_kinds`)."""
    members = [[place for place, other in enumerate(all_kinds) if other == kind] for kind in kinds]
    values, means, units = [], [], []
    for kind, own in zip(kinds, members, strict=True):
        within = pair_excess[:, own][:, :, own]
        values.append(np.nansum(within, 2) / (len(own) - 1))
        means.append(np.nanmean(pair_means[:, own][:, :, own], (1, 2)))
        if null_std is not None:
            deviation = null_std[:, [*dict.fromkeys(all_kinds)].index(kind)]
            units.append(values[-1].mean(1) / deviation)
    both = [*members[0], *members[1]]
    p = [kinds_differ(excess[np.ix_(both, both)], len(members[0])) for excess in pair_excess]
    return KindComparison(
        kinds=kinds, tests=tests, first=values[0], second=values[1], means=np.stack(means, 1), p=np.array(p),
        sizes=(len(members[0]), len(members[1])), standardised=np.stack(units, 1) if units else None,
    )  # fmt: skip


def null_deviations(
    null: Float64[np.ndarray, "draw model model"], kinds: Sequence[str]
) -> Float64[np.ndarray, " kind"]:
    """Return the standard deviation over draws of the mean over the pairs of models of each kind, in the order in which
    kinds first occur; NaN for one model."""
    deviations = []
    for kind in dict.fromkeys(kinds):
        own = [place for place, other in enumerate(kinds) if other == kind]
        pairs = np.array([*itertools.combinations(own, 2)]).reshape(-1, 2).astype(int)
        deviations.append(null[:, pairs[:, 0], pairs[:, 1]].mean(1).std(ddof=1) if len(pairs) else math.nan)
    return np.array(deviations)


def by_kind(
    excess: Float64[np.ndarray, "model model"], deviations: Float64[np.ndarray, " kind"], kinds: Sequence[str]
) -> str:
    """Say how much the heads of each kind of models are alike above permuted ones; nothing for fewer than two kinds of
    two models or more."""
    parts = []
    for kind, deviation in zip(dict.fromkeys(kinds), deviations, strict=True):
        own = [place for place, other in enumerate(kinds) if other == kind]
        if len(own) > 1:
            mean = excess[np.ix_(own, own)][np.triu_indices(len(own), 1)].mean()
            parts.append(f"{kind} {mean:+.3f} ({mean / deviation:.1f} standard deviations of permuted heads)")
    if len(parts) < 2:
        return ""
    return (
        f"Above permuted heads, within each kind of model: {'; '.join(parts)}. Kinds differ in how alike heads are "
        "that are not matched: compare the standardised effects, of models of like loss and size"
    )


def kinds_differ(pairs: Float64[np.ndarray, "model model"], n_first: int) -> float:
    """Return the two-sided p of the difference of both kinds' means over their own pairs of models; NaN where one is
    not finite, and for kinds of fewer than five models.

    The largest p of three tests of pseudo-values: with U the mean over a kind's pairs and U₋ᵢ that without model i,
    n U − (n − 1) U₋ᵢ are nearly independent and have the mean U (Arvesen 1969, the jackknife of U-statistics).

        Welch's t        pairs across the kinds do not count, so that unlike kinds may be less alike in whatever way
        Student's t      the same with one variance for both kinds, of which the smaller may have none by chance
        permutations     of the models over the kinds, all of them or 2,000, of Welch's t: exact where kinds differ in
                         nothing, such as where each model forms a circuit by chance, so that pseudo-values take few
                         values

    With five models of each kind there are 252 permutations, and p is .0079 at the least.
    """
    import scipy.stats

    n, within = len(pairs), pairs.copy()
    np.fill_diagonal(within, 0)
    own = np.arange(n) < n_first
    used = np.equal.outer(own, own)
    if min(n_first, n - n_first) < LEAST_MODELS or not np.isfinite(within[used]).all():
        return math.nan
    t, degrees, student = _welch(np.where(used, within, 0), own[None])
    if not np.isfinite(t[0]):
        return math.nan  # no spread to compare with
    p = 2 * float(max(scipy.stats.t.sf(t[0], degrees[0]), scipy.stats.t.sf(student[0], n - 2)))
    if not np.isfinite(within).all():
        return p
    permuted, _, _ = _welch(within, _splits(n_first, n - n_first))
    return max(p, float((permuted >= t[0] - 1e-9).mean()))


def _welch(
    within: Float64[np.ndarray, "model model"], first: Bool[np.ndarray, "split model"]
) -> tuple[Float64[np.ndarray, " split"], Float64[np.ndarray, " split"], Float64[np.ndarray, " split"]]:
    """Return Welch's |t| of the pseudo-values of both kinds, its degrees of freedom, and Student's |t|, for each split
    of the models into a first kind and the others; of kinds without spread inf, and 0 where they do not differ."""
    means, squares, sizes = [], [], []
    for own in (first, ~first):
        n = own.sum(1, keepdims=True)
        rows = np.where(own, own.astype(np.float64) @ within, 0)
        whole = rows.sum(1, keepdims=True)
        values = whole / (n - 1) - (whole - 2 * rows) / (n - 2)
        mean = (values * own).sum(1, keepdims=True) / n
        means.append(mean[:, 0])
        squares.append((np.square(values - mean) * own).sum(1) / ((n - 1) * n)[:, 0])
        sizes.append(n[:, 0])
    difference, variance = np.abs(means[0] - means[1]), squares[0] + squares[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        t = np.where(variance > 1e-24, difference / np.sqrt(variance), np.where(difference > 1e-12, np.inf, 0.0))
        degrees = variance**2 / (squares[0] ** 2 / (sizes[0] - 1) + squares[1] ** 2 / (sizes[1] - 1))
        both = sum(square * size * (size - 1) for square, size in zip(squares, sizes, strict=True))
        student = difference / np.sqrt(both / (sum(sizes) - 2) * (1 / sizes[0] + 1 / sizes[1]))
    return t, degrees, student


@lru_cache(maxsize=8)
def _splits(n_first: int, n_second: int) -> Bool[np.ndarray, "split model"]:
    """Return the splits of models into kinds of these sizes, the own one first: all, or 2,000 at random."""
    n = n_first + n_second
    if math.comb(n, n_first) <= MOST_SPLITS:
        members = np.array([*itertools.combinations(range(n), n_first)])
        return np.equal.outer(np.arange(n), members).any(-1).T
    own = np.arange(n) < n_first
    random = np.random.default_rng(0)
    return np.stack([own, *(random.permutation(own) for _ in range(MOST_SPLITS - 1))])


#: Models below which layers have no interval.
LEAST_FOR_LAYERS = 3


class Contrast(NamedTuple):
    """A difference between layers and its 95% interval over models; NaN bounds for fewer than three models."""

    value: float
    low: float
    high: float


def by_layer(
    by_model: Float64[np.ndarray, "head model"], layers: Int64[np.ndarray, " head"]
) -> Float64[np.ndarray, " layer"]:
    """Return the mean of each layer's heads, each of them its mean over other models; NaN for a layer without any."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # means of nothing
        of_heads = np.nanmean(by_model, 1)
        return np.array([np.nanmean(of_heads[layers == layer]) for layer in range(layers.max() + 1)])


def without_each_model(
    by_model: Float64[np.ndarray, "head model"], owner: Int64[np.ndarray, " head"], layers: Int64[np.ndarray, " head"]
) -> Float64[np.ndarray, "model layer"]:
    """Return `by_layer` without each model in turn, neither its heads nor others' pairs with them."""
    rows = []
    for model in range(by_model.shape[1]):
        left = by_model.copy()
        left[owner == model], left[:, model] = np.nan, np.nan
        rows.append(by_layer(left, layers))
    return np.stack(rows)


def layer_interval(value: float, without: Float64[np.ndarray, " model"]) -> Contrast:
    """Return a number with its 95% interval, from the same number without each model in turn."""
    from scipy.special import stdtrit

    n = len(without)
    if n < LEAST_FOR_LAYERS or not np.isfinite(without).all():
        return Contrast(value, float("nan"), float("nan"))
    reach = float(stdtrit(n - 1, 0.975)) * jackknife_error(without)
    return Contrast(value, value - reach, value + reach)


def layer_contrasts(n_layers: int) -> dict[str, Float64[np.ndarray, " layer"]]:
    """Return the weights of `rise`, for two layers and more, and of `dip`, for three and more."""
    weights: dict[str, np.ndarray] = {}
    if n_layers >= 2:
        half = n_layers // 2
        weights["rise"] = np.zeros(n_layers)
        weights["rise"][-half:], weights["rise"][:half] = 1 / half, -1 / half
    if n_layers >= 3:
        third = n_layers // 3
        weights["dip"] = np.full(n_layers, 1 / (n_layers - 2 * third))
        weights["dip"][-third:] = weights["dip"][:third] = -1 / (2 * third)
    return weights


def trend_sentence(values: Float64[np.ndarray, " layer"], without: Float64[np.ndarray, "model layer"]) -> str:
    """Say in which layers heads recur most and least, and whether they do so more in later or in middle ones."""
    if len(values) < 2:
        return ""
    if lacking := [str(layer) for layer in np.flatnonzero(~np.isfinite(values))]:
        return f"Nothing is said of a trend: no head of layer {', '.join(lacking)} is assigned to one of another model."
    most, least = int(values.argmax()), int(values.argmin())
    clauses = [f"Heads are alike above permuted ones by {values[most]:+.3f} in layer {most}, the most, and by "
            f"{values[least]:+.3f} in layer {least}, the least"]  # fmt: skip
    words = {"rise": "in later layers than in earlier ones", "dip": "in middle layers than in outer ones"}
    for name, weights in layer_contrasts(len(values)).items():
        value, low, high = layer_interval(float(weights @ values), without @ weights)
        if np.isnan(low):
            few = "with fewer than three models nothing is said of a trend"
            lone = "nothing is said of a trend, since without one of the models a layer has no pairs"
            clauses.append(few if len(without) < LEAST_FOR_LAYERS else lone)
            break
        undecided = low <= 0 <= high
        verdict = "it is undecided whether more or less" if undecided else "more" if low > 0 else "less"
        clauses.append(f"{verdict} {words[name]}, by {value:+.3f} (95% {low:+.3f} to {high:+.3f} over models)")
    return "; ".join(clauses) + "."
