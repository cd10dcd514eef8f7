"""Mixtures, the unrolled operator and SNR against numpy loops, closed forms, and Theorem 3.1 where it is exact."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from aotlens.denoise.subspaces import OverflowedTokens, sample_mixture, snr, unroll
from aotlens.denoise.theorem import conditions, denoising_rates
from aotlens.denoise.unrolling import theorem_rate


def numpy_layer(z, bases, step_size, phi, threshold):
    """Equations 3 and 4 of the paper on columns, as printed, with φ on columns."""
    columns = z.T
    update = np.zeros_like(columns)
    for basis in bases:
        scores = columns.T @ basis @ basis.T @ columns
        weights = np.exp(scores - scores.max(0))
        weights /= weights.sum(0)
        if phi == "thresholded_softmax":
            weights = threshold * (weights > threshold)
        update += basis @ basis.T @ columns @ weights
    return (columns + step_size * update).T


@pytest.mark.parametrize(("phi", "threshold"), [("softmax", None), ("thresholded_softmax", 0.6)])
@pytest.mark.parametrize("orthogonal", [True, False])
def test_unrolling_is_the_papers_equations_on_columns(phi, threshold, orthogonal) -> None:
    mixture = sample_mixture(3, (2, 4, 3), (5, 7, 4), 12, 0.3, seed=1, orthogonal=orthogonal)
    layers = unroll(mixture.tokens, mixture.bases, 0.4, phi, threshold, 3)
    assert layers.shape == (4, 16, 12)
    assert torch.equal(layers[0], mixture.tokens)
    z = mixture.tokens.numpy()
    for layer in layers[1:]:
        z = numpy_layer(z, mixture.bases.numpy(), 0.4, phi, threshold)
        np.testing.assert_allclose(layer.numpy(), z, rtol=1e-10, atol=1e-12)


def test_a_mixture_has_the_laws_of_definition_2_1() -> None:
    mixture = sample_mixture(2, (3, 5), (4000, 2000), 10, 0.25, seed=3)
    assert mixture.ranks == (3, 5)
    assert mixture.bases.shape == (2, 10, 5)
    assert float(mixture.bases[0, :, 3:].abs().max()) == 0
    assert mixture.coherence == 0
    stacked = torch.cat([mixture.bases[0, :, :3], mixture.bases[1]], dim=1)
    torch.testing.assert_close(stacked.T @ stacked, torch.eye(8, dtype=torch.float64), rtol=0, atol=1e-12)
    assert torch.bincount(mixture.labels).tolist() == [4000, 2000]
    for cluster, other in ((0, 1), (1, 0)):
        tokens = mixture.tokens[mixture.labels == cluster]
        signal = (tokens @ mixture.bases[cluster]).pow(2).sum(1).mean()
        noise = (tokens @ mixture.bases[other]).pow(2).sum(1).mean()
        assert float(signal) == pytest.approx(mixture.ranks[cluster], rel=0.05)
        assert float(noise) == pytest.approx(0.0625 * mixture.ranks[other], rel=0.05)


def test_incoherent_subspaces_say_how_far_from_orthogonal_they_are() -> None:
    mixture = sample_mixture(3, 4, 6, 20, 0.1, orthogonal=False)
    cosines = [
        np.cos(_angles(mixture.bases[i].numpy(), mixture.bases[j].numpy())).max() for i, j in ((0, 1), (0, 2), (1, 2))
    ]
    assert mixture.coherence == pytest.approx(max(cosines))
    assert sample_mixture(3, 8, 6, 20, 0.1, orthogonal=False).ranks == (8, 8, 8)  # together more than d_model


def _angles(a, b):
    from scipy.linalg import subspace_angles

    return subspace_angles(a, b)


def test_precision_rounds_the_same_draw() -> None:
    double = sample_mixture(2, 3, 4, 8, 0.2, seed=5)
    single = sample_mixture(2, 3, 4, 8, 0.2, seed=5, dtype=torch.float32)
    assert torch.equal(double.tokens.float(), single.tokens)


def test_snr_is_a_ratio_of_frobenius_norms() -> None:
    mixture = sample_mixture(3, 2, (3, 5, 4), 9, 0.4, seed=2)
    ratios = snr(mixture.tokens, mixture.bases, mixture.labels)
    for cluster in range(3):
        z = mixture.tokens[mixture.labels == cluster].numpy()
        projection = mixture.bases[cluster].numpy() @ mixture.bases[cluster].numpy().T
        expected = np.linalg.norm(z @ projection) / np.linalg.norm(z - z @ projection)
        assert float(ratios[cluster]) == pytest.approx(expected)
    # One cluster that fills the space has no noise at all.
    whole = snr(torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)[None], torch.zeros(3).long())
    assert math.isinf(float(whole))


def test_one_cluster_by_hand() -> None:
    """K = 1: a token far longer than the others attends to itself with τ, so that a layer stretches it by 1 + ητ."""
    mixture = sample_mixture(1, 2, 2, 3, 0.7, seed=1)
    inside = torch.tensor([[8.0, 0.0], [0.0, 7.0]], dtype=torch.float64) @ mixture.bases[0].T
    outside = torch.linalg.qr(mixture.bases[0], mode="complete").Q[:, 2:].T
    tokens = torch.stack([inside[0] + 2 * outside[0], inside[1] - outside[0]])
    layers = unroll(tokens, mixture.bases, 0.5, "thresholded_softmax", 0.6, 2)
    torch.testing.assert_close(layers[2], tokens + (1.3**2 - 1) * inside, rtol=1e-12, atol=1e-12)
    expected = [1.3**layer * math.hypot(8, 7) / math.hypot(2, 1) for layer in range(3)]
    ratios = [float(snr(layer, mixture.bases, mixture.labels)) for layer in layers]
    assert ratios == pytest.approx(expected, rel=1e-12)


def test_the_rate_of_theorem_3_1_is_exact_for_as_many_layers_as_the_design_says() -> None:
    assert theorem_rate(0.5, 0.6) == pytest.approx(1.3)
    rates = denoising_rates([0.01, 0.05, 0.1, 0.2, 0.5], n_layers=14, seeds=range(2))
    exact = rates.exact_layers
    for noise, (least, most) in enumerate([(10, 12), (4, 6), (2, 3), (0, 1), (0, 0)]):
        assert least <= int(exact[noise].min()) and int(exact[noise].max()) <= most, rates.noises[noise]
    first = rates.ratios[0, :, :10]
    torch.testing.assert_close(first, torch.full_like(first, 1.3), rtol=1e-12, atol=0)
    assert float(rates.ratios[1, :, 8:].min()) < 1  # afterwards the SNR collapses
    frame = rates.to_frame()
    assert len(frame) == 5 * 2 * 15
    assert frame.loc[(frame.noise == 0.5) & (frame.layer == 0), "snr"].between(1, 1.3).all()


def test_an_unrolling_that_overflows_is_refused_and_leaves_the_other_layers_of_a_curve() -> None:
    mixture = sample_mixture(2, 2, 4, 6, 0.3)
    with pytest.raises(OverflowedTokens, match="fewer layers"):
        unroll(mixture.tokens, mixture.bases, 1e200, "softmax", None, 3)
    rates = denoising_rates(
        [0.3], n_clusters=2, rank=2, n_tokens=4, d_model=6, step_size=1e200, phi="softmax", threshold=None,
        n_layers=3, seeds=[0],
    )  # fmt: skip
    assert rates.snr[0, 0, 0].isfinite().all()
    assert rates.snr[0, 0, -1].isnan().all()


def test_bounds_are_those_of_the_paper_by_hand() -> None:
    """K = 3, p = 20, N = 150, so that ln N = 5.0106353 and √ln N = 2.2384448."""
    rows = conditions(3, 20, 50, 256, 0.05, 0.6).rows
    by_hand = {
        "d ≥ K·p (orthogonal subspaces)": (256, 60, True),
        "p ≥ 16(√ln N + 1)²": (20, 167.8004, False),  # 16 · 3.2384448²
        "N ≥ 8πK² ln³N": (150, 28_455.14, False),  # 226.19467 · 125.79934
        "δ ≤ ⅛√(ln N / p)": (0.05, 0.06256645, True),  # √0.25053176 ÷ 8
        "N ≥ 16K⁴": (150, 1296, False),
        "p ≥ 64(√ln N + 1)²": (20, 671.2016, False),
        "τ > 1/2": (0.6, 0.5, True),
        "τ ≤ 1 / (1 + N exp(−9p/32))": (0.6, 0.648936, True),  # 1 ÷ (1 + 150 · 0.00360656)
    }
    assert [row.statement for row in rows] == list(by_hand)
    for row, (value, bound, met) in zip(rows, by_hand.values(), strict=True):
        assert row.value == value and row.met is met, row.statement
        assert row.bound == pytest.approx(bound, rel=2e-6), row.statement


def test_conditions_carry_the_papers_constants() -> None:
    rows = {row.statement: row for row in conditions(4, 64, 50, 256, 0.05, 0.6).rows}
    assert rows["p ≥ 64(√ln N + 1)²"].bound == pytest.approx(698, abs=0.5)
    assert rows["N ≥ 8πK² ln³N"].bound == pytest.approx(59_810, rel=1e-3)
    assert rows["δ ≤ ⅛√(ln N / p)"].bound == pytest.approx(math.sqrt(math.log(200) / 64) / 8)
    assert [row.met for row in rows.values()] == [True, False, False, False, False, False, True, True]
    # Sizes at which all hold, which nobody can draw: p = 6,400 for N = 4·10⁶ tokens.
    assert conditions(2, 6400, 2_000_000, 12_800, 0.001, 0.6).all_met
    assert not conditions(2, 6400, 2_000_000, 12_800, 0.001, 0.5).all_met
    assert list(conditions(4, 64, 50, 256, 0.05, 0.6).to_frame().columns) == [
        "statement", "source", "value", "bound", "met",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 7}, "sum to at most d_model = 12"),
        ({"rank": (2, 3, 4)}, "or 2 of them"),
        ({"n_tokens": 0}, "n_tokens"),
        ({"noise": -0.1}, "noise=-0.1"),
        ({"noise": math.nan}, "noise=nan"),
        ({"n_clusters": 0, "rank": ()}, "at least 1 cluster"),
    ],
)
def test_mixtures_that_cannot_be_are_refused(change, message) -> None:
    arguments = {"n_clusters": 2, "rank": 3, "n_tokens": 4, "d_model": 12, "noise": 0.1} | change
    with pytest.raises(ValueError, match=message):
        sample_mixture(**arguments)


def test_tokens_and_bases_that_do_not_fit_are_refused() -> None:
    mixture = sample_mixture(2, 3, 4, 12, 0.1)
    with pytest.raises(ValueError, match=r"\[n, d_model\]"):
        unroll(mixture.tokens[:, :5], mixture.bases, 0.5, "softmax", None, 1)
    with pytest.raises(ValueError, match="n_layers=0"):
        unroll(mixture.tokens, mixture.bases, 0.5, "softmax", None, 0)
    with pytest.raises(ValueError, match="finite"):
        unroll(mixture.tokens * math.nan, mixture.bases, 0.5, "softmax", None, 1)
    with pytest.raises(ValueError, match="fixed"):
        unroll(mixture.tokens, mixture.bases, 0.5, "fixed", None, 1)
    with pytest.raises(ValueError, match="labels: expected 0 to 1"):
        snr(mixture.tokens, mixture.bases, mixture.labels + 1)
    with pytest.raises(ValueError, match=r"clusters \[1\]"):
        snr(mixture.tokens, mixture.bases, torch.zeros_like(mixture.labels))
