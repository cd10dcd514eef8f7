"""Rank correlations, lines and bootstrap intervals against closed forms; what is undefined is NaN."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from aotlens.statistics import (
    as_clusters,
    bootstrap_interval,
    fit_line,
    holm,
    interval_text,
    jackknife_error,
    mcnemar_p,
    mean_interval,
    permutation_p,
    rank_correlation,
    ratio_intervals,
    wilson_interval,
)
from tests.messages import refused


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = np.array([3.0, 1.0, 4.0, 10.0, 5.0])
    without = np.array([np.delete(values, place).mean() for place in range(5)])
    assert jackknife_error(without) == pytest.approx(scipy.stats.sem(values))


def test_a_permutation_p_counts_what_was_observed_and_ties() -> None:
    null = np.array([[0.1, 0.3, 0.3, 0.5], [1.0, 2.0, 3.0, 4.0]])
    assert permutation_p(null, np.array([0.3, 9.0])).tolist() == [4 / 5, 1 / 5]
    assert permutation_p(null[0], 0.5) == 2 / 5 and permutation_p(null[0], 0.1 + 0.2) == 4 / 5


def test_holm_rejects_what_its_steps_reject_one_after_another() -> None:
    p = np.random.default_rng(0).uniform(size=(50, 7)) ** 3
    for row in p:
        steps, rejected = sorted(range(7), key=row.__getitem__), set()
        for place, test in enumerate(steps):
            if row[test] > 0.05 / (7 - place):
                break
            rejected.add(test)
        assert {*np.flatnonzero(holm(row) <= 0.05)} == rejected
    assert holm(np.array([0.9, 0.8])).tolist() == [1.0, 1.0]


def test_rank_correlation_is_pearsons_of_ranks() -> None:
    x, y = np.array([3.0, 1.0, 4.0, 10.0, 5.0]), np.array([1.0, 0.0, 8.0, 2.0, 3.0])
    ranks = np.argsort(np.argsort(np.stack([x, y]), axis=1), axis=1)
    assert rank_correlation(x, y) == pytest.approx(np.corrcoef(ranks)[0, 1])
    assert rank_correlation(x, -np.exp(x)) == pytest.approx(-1)
    assert math.isnan(rank_correlation(x, np.ones(5))) and math.isnan(rank_correlation(x[:1], y[:1]))


def test_a_line_is_fitted_through_the_points_that_are_there() -> None:
    x = np.array([0.0, 1.0, 2.0, 3.0])
    assert fit_line(x, np.array([1.0, 3.0, np.nan, 7.0])) == pytest.approx((2, 1, 1))
    y = np.array([0.0, 1.0, 1.0, 3.0])
    slope, intercept = np.polyfit(x, y, 1)
    residual = ((y - intercept - slope * x) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    assert fit_line(x, y) == pytest.approx((slope, intercept, 1 - residual))
    level = fit_line(x, np.full(4, 2.0))
    assert level.slope == 0 and math.isnan(level.r_squared)
    assert all(math.isnan(value) for value in fit_line(x, np.array([1.0, np.nan, np.nan, 2.0])))


def test_bootstrap_intervals_cover_and_leave_out_what_is_undefined() -> None:
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        sample = generator.normal(size=40)
        low, high = bootstrap_interval(lambda drawn, sample=sample: float(sample[drawn].mean()), 40, n_resamples=300)
        covered += low < 0 < high
    assert 0.88 <= covered / 200 <= 0.99
    kind, values = np.array([True, False, False]), np.array([5.0, 1.0, 2.0])

    def of_kind(drawn: np.ndarray) -> float:
        return float(values[drawn][kind[drawn]].mean()) if kind[drawn].any() else math.nan

    assert bootstrap_interval(of_kind, 3) == (5.0, 5.0)
    assert all(math.isnan(end) for end in bootstrap_interval(lambda drawn: math.nan, 3))


def test_wilsons_interval_is_where_the_score_test_rejects() -> None:
    """Its ends p solve |share − p| = z √(p (1 − p) / n), and near 0 it stays within the shares there are."""
    for successes, n in ((3, 20), (50, 100), (0, 5153), (20, 20)):
        share, (low, high) = successes / n, wilson_interval(successes, n)
        for end in (low, high):
            if 0 < end < 1:
                assert abs(share - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / n), rel=1e-5)
        assert 0 <= low <= share <= high <= 1
    assert wilson_interval(0, 5153)[1] == pytest.approx(0.000745, rel=1e-3)
    assert all(math.isnan(end) for end in wilson_interval(0, 0))
    with pytest.raises(ValueError, match="from 0 to n = 3 successes, got 4"):
        wilson_interval(4, 3)


def test_mcnemars_test_is_a_sign_test_of_the_questions_that_differ() -> None:
    left = np.array([1, 1, 1, 1, 1, 0, 0, 1, 0], dtype=bool)
    right = np.array([0, 0, 0, 0, 0, 1, 0, 1, 0], dtype=bool)
    of_six = [math.comb(6, k) / 2**6 for k in range(7)]  # 5 of the left alone, 1 of the right alone
    assert mcnemar_p(left, right) == pytest.approx(of_six[0] + of_six[1] + of_six[5] + of_six[6])
    assert mcnemar_p(left, right) == mcnemar_p(right, left)
    assert mcnemar_p(left, left) == 1.0


def test_mcnemars_p_is_at_most_alpha_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    p = [mcnemar_p(*(generator.random((2, 60)) < 0.3)) for _ in range(400)]
    assert np.mean(np.array(p) <= 0.05) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 400)


@pytest.mark.parametrize(("n", "least"), [(2, 0.9), (4, 0.9), (8, 0.91), (16, 0.92), (40, 0.91)])
def test_intervals_of_ratios_cover(n: int, least: float) -> None:
    """Sequences with unlike numbers of queries and bursty scores, true ratio 0.3: 600 draws, one a row."""
    rng = np.random.default_rng(n)
    counts = rng.integers(5, 40, n).astype(float)
    sums = counts * rng.gamma(4.0, 0.3 / 4.0, (600, n))  # all rows share their counts, as motifs' heads do
    low, high = ratio_intervals(sums, counts).T
    assert least <= np.mean((low <= 0.3) & (high >= 0.3)) <= 0.995


def test_one_unit_with_counts_has_no_interval() -> None:
    sums, counts = np.zeros((3, 16)), np.zeros((3, 16))
    counts[0, 4], sums[0, 4] = 44, -3  # of 16 sequences one has queries
    counts[1, :2], sums[1, :2] = 10, (1, 2)
    intervals = ratio_intervals(sums, counts)
    assert np.isnan(intervals[[0, 2]]).all()
    reach = scipy.stats.t.ppf(0.975, 1) * math.sqrt(2 * (0.5**2 + 0.5**2)) / 20  # Student's t by hand
    np.testing.assert_allclose(intervals[1], [0.15 - reach, 0.15 + reach])
    assert ratio_intervals(np.zeros((0, 5)), np.zeros(5)).shape == (0, 2)


def cr2(y: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """Of the mean of y, by matrices: the variance Σ M Xᵀ_g A_g e_g e_gᵀ A_g X_g M with A_g = (I − H_gg)^−½, and
    Satterthwaite's degrees of freedom from the vectors p_g = (I − H)ᵀ_g A_g X_g M of units that are alike."""
    n = len(y)
    H = np.full((n, n), 1 / n)
    residuals = y - y.mean()
    variance, vectors = 0.0, []
    for group in np.unique(groups):
        own = groups == group
        values, basis = np.linalg.eigh(np.eye(own.sum()) - H[np.ix_(own, own)])
        A = basis @ np.diag(values**-0.5) @ basis.T
        weights = A @ np.ones(own.sum()) / n
        variance += float(weights @ residuals[own]) ** 2
        vectors.append((np.eye(n) - H)[:, own] @ weights)
    gram = np.array(vectors) @ np.array(vectors).T
    return variance, np.trace(gram) ** 2 / np.trace(gram @ gram)


@pytest.mark.parametrize("sizes", [(4, 4, 4), (1, 1, 1, 1, 1), (9, 2, 1, 3), (20, 1, 1)])
def test_clustered_intervals_are_cr2_with_satterthwaites_degrees(sizes: tuple[int, ...]) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    y = np.random.default_rng(1).gamma(2.0, size=sum(sizes)) + groups
    variance, degrees = cr2(y, groups)
    reach = scipy.stats.t.ppf(0.975, degrees) * variance**0.5
    low, high = mean_interval(y, groups)
    np.testing.assert_allclose([low, high], [y.mean() - reach, y.mean() + reach], rtol=1e-10)
    order = np.random.default_rng(2).permutation(len(y))  # whatever the order of units and the names of clusters
    np.testing.assert_allclose(mean_interval(y[order], 7 * groups[order] - 3), (low, high), rtol=1e-10)


def test_independent_units_have_students_t() -> None:
    y = np.random.default_rng(3).normal(size=11)
    theirs = scipy.stats.ttest_1samp(y, 0).confidence_interval(0.9)
    np.testing.assert_allclose(mean_interval(y, confidence=0.9), (theirs.low, theirs.high))


@pytest.mark.parametrize(
    ("sizes", "shared", "least", "most"),
    [
        ((12,) * 5, 0.0, 0.93, 0.97), ((12,) * 5, 0.1, 0.93, 0.97), ((12,) * 5, 0.9, 0.93, 0.97),
        ((50, 3, 3, 2, 2), 0.0, 0.97, 1.0), ((50, 3, 3, 2, 2), 0.5, 0.93, 0.98), ((50, 3, 3, 2, 2), 0.9, 0.93, 0.98),
        ((20,) * 3, 0.0, 0.93, 0.97), ((20,) * 3, 0.5, 0.93, 0.97),
    ],
)  # fmt: skip
def test_intervals_over_documents_cover(sizes: tuple[int, ...], shared: float, least: float, most: float) -> None:
    """4,000 draws of windows of which a share of the variance is their document's; intervals over windows are short."""
    rng, groups = np.random.default_rng(0), np.repeat(np.arange(len(sizes)), sizes)
    documents = rng.normal(size=(4000, len(sizes)))[:, groups]
    y = shared**0.5 * documents + (1 - shared) ** 0.5 * rng.normal(size=(4000, len(groups)))
    low, high = ratio_intervals(y, np.ones(len(groups)), groups).T
    assert least <= np.mean((low <= 0) & (high >= 0)) <= most
    low, high = ratio_intervals(y, np.ones(len(groups))).T
    assert (np.mean((low <= 0) & (high >= 0)) < 0.9) == (shared > 0)


def test_two_documents_have_no_interval_and_clusters_are_one_for_each_unit() -> None:
    assert np.isnan(mean_interval(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 1, 1]))).all()
    assert np.isfinite(mean_interval(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 0, 1, 2]))).all()
    named = as_clusters(["b", "a", "b"], 3)
    assert named is not None and named.tolist() == [0, 1, 0] and as_clusters(None, 3) is None
    with refused("clusters", "one for each of 3", "got 2"):
        as_clusters([0, 1], 3)


def test_an_interval_that_is_unknown_is_not_printed() -> None:
    assert interval_text((-0.125, 0.5), "+.2f") == " (95% -0.12 to +0.50)"
    assert interval_text(np.array([0.1, 0.2]), ".1f", "", ", over pairs") == " (0.1 to 0.2, over pairs)"
    assert interval_text((math.nan, math.nan), ".3f") == interval_text((0.1, math.inf), ".3f") == ""
