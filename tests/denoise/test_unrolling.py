"""One mixture followed layer by layer, against numpy loops and what the theorem says where it is exact."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from aotlens.denoise.subspaces import memberships, sample_mixture, snr, unroll
from aotlens.denoise.theorem import denoising_rates
from aotlens.denoise.unrolling import unroll_mixture


@pytest.fixture(scope="module")
def mixture():
    return sample_mixture(3, 24, 10, 80, 0.05, seed=2)


@pytest.mark.parametrize(("phi", "threshold"), [("softmax", None), ("thresholded_softmax", 0.3)])
def test_memberships_are_phi_of_the_scores_within_a_subspace(phi, threshold) -> None:
    mixture = sample_mixture(3, (2, 4, 3), (5, 7, 4), 12, 0.3, seed=1, orthogonal=False)
    tokens, bases = mixture.tokens.numpy(), mixture.bases.numpy()
    patterns = memberships(mixture.tokens, mixture.bases, phi, threshold).numpy()
    for basis, pattern in zip(bases, patterns, strict=True):
        scores = tokens @ basis @ basis.T @ tokens.T
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        expected = weights if threshold is None else threshold * (weights > threshold)
        np.testing.assert_allclose(pattern, expected, rtol=1e-10, atol=1e-12)


def test_the_tokens_are_those_of_unroll_and_the_memberships_make_the_next_layer(mixture) -> None:
    result = unroll_mixture(mixture, 0.5, "softmax", None, 4)
    torch.testing.assert_close(
        result.tokens, unroll(mixture.tokens, mixture.bases, 0.5, "softmax", None, 4), rtol=0, atol=0
    )
    patterns = torch.stack([result.memberships(cluster) for cluster in range(3)], dim=1)
    assert patterns.shape == (5, 3, 30, 30)
    for layer in range(4):
        update = sum(
            patterns[layer, cluster] @ result.tokens[layer] @ basis @ basis.T
            for cluster, basis in enumerate(mixture.bases)
        )
        torch.testing.assert_close(result.tokens[layer + 1], result.tokens[layer] + 0.5 * update, rtol=1e-10, atol=0)
    with pytest.raises(ValueError, match=r"cluster=3: expected .* 0 to 2"):
        result.memberships(3)


def test_lengths_and_angles_are_those_to_the_subspaces(mixture) -> None:
    result = unroll_mixture(mixture, 0.5, "softmax", None, 2)
    for layer, token, cluster in ((0, 3, 0), (2, 17, 2), (1, 25, 1)):
        z, basis = result.tokens[layer, token].numpy(), mixture.bases[cluster].numpy()
        inside = basis @ (basis.T @ z)
        assert float(result.lengths[layer, token, cluster]) == pytest.approx(np.linalg.norm(inside))
        cosine = float(inside @ z / np.linalg.norm(inside) / np.linalg.norm(z))
        assert float(result.angles[layer, token, cluster]) == pytest.approx(math.degrees(math.acos(cosine)))
    within = sample_mixture(2, 3, 4, 8, 0.0)
    torch.testing.assert_close(
        unroll_mixture(within, 0.5, "softmax", None, 1).angles[0],
        torch.where(torch.nn.functional.one_hot(within.labels, 2).bool(), 0.0, 90.0).double(),
        rtol=0,
        atol=1e-5,  # of an angle near 0 the cosine keeps half the digits
    )


def test_exact_layers_end_where_a_ratio_leaves_the_rate(mixture) -> None:
    result = unroll_mixture(mixture, 0.5, "thresholded_softmax", 0.6, 12)
    ratios = [
        float(
            (snr(after, mixture.bases, mixture.labels) / snr(before, mixture.bases, mixture.labels) - 1.3).abs().max()
        )
        for before, after in zip(result.tokens[:-1], result.tokens[1:], strict=True)
    ]
    broken = next(layer for layer, off in enumerate(ratios) if off > 1e-8)
    assert 1 <= result.exact_layers == broken < 12
    assert result.rate == 1.3
    assert math.isnan(unroll_mixture(mixture, 0.5, "softmax", None, 1).rate)
    frame = result.to_frame()
    assert len(frame) == 13 * 3
    assert frame.ratio[3] == pytest.approx(1.3) and math.isnan(frame.ratio[0])


def test_exact_layers_are_those_of_the_proof(mixture) -> None:
    """Eqs. 30 to 35 of *aot*: tokens attend to themselves in their subspace, and their signal alone has grown."""
    result = unroll_mixture(mixture, 0.5, "thresholded_softmax", 0.6, 12)
    own = mixture.bases[mixture.labels]
    signal = (own @ (own.mT @ mixture.tokens[:, :, None]))[:, :, 0]
    noise = mixture.tokens - signal
    for layer in range(result.exact_layers + 1):
        torch.testing.assert_close(result.tokens[layer], 1.3**layer * signal + noise, rtol=1e-9, atol=1e-12)
        weights = memberships(result.tokens[layer], mixture.bases, "softmax", None)
        as_proved = []
        for cluster in range(3):
            itself = torch.diag(mixture.labels == cluster)
            as_proved.append(torch.equal(weights[cluster] > 0.6, itself))  # Eqs. 32 and 34
            assert torch.equal(result.memberships(cluster)[layer] == 0.6, itself) == as_proved[-1]  # Eq. 30
        assert all(as_proved) == (layer < result.exact_layers)


def test_an_overflow_keeps_the_layers_before_it() -> None:
    sizes = {"n_clusters": 2, "rank": 4, "n_tokens": 6, "d_model": 8}
    result = unroll_mixture(sample_mixture(**sizes, noise=0.1), 1e200, "softmax", None, 5)
    assert result.overflowed
    assert len(result.tokens) == len(result.snr) < 6
    assert bool(result.tokens.isfinite().all())
    rates = denoising_rates([0.1], **sizes, step_size=1e200, phi="softmax", threshold=None, n_layers=5, seeds=[0])
    torch.testing.assert_close(rates.snr[0, 0, : len(result.snr)], result.snr, rtol=0, atol=0, equal_nan=True)
    assert bool(rates.snr[0, 0, len(result.snr) :].isnan().all())
    with pytest.raises(ValueError, match="n_layers=0"):
        unroll_mixture(sample_mixture(**sizes, noise=0.1), 0.5, "softmax", None, 0)
