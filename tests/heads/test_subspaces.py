"""Subspaces of heads against scipy's principal angles and against random subspaces that are drawn here."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import subspace_angles
from scipy.stats import ortho_group

from aotlens.heads import subspaces
from aotlens.models import AttentionOnlyTransformer
from tests.small_models import SMALL, maker

make = maker({**SMALL, "d_head": 4})


def folded(model: AttentionOnlyTransformer, layer: int, head: int) -> np.ndarray:
    """W_V behind the norm, column by column: what a unit vector of the stream adds to the head's values."""
    weight = model.W_V[layer, head].detach().double().numpy()
    if not model.cfg.norm:
        return weight
    gain = model.blocks[layer].ln1.w.detach().double().numpy()
    stream = np.eye(model.cfg.d_model)
    return ((stream - stream.mean(1, keepdims=True)) * gain) @ weight


@pytest.mark.parametrize("changes", [{}, {"attention": "mssa"}, {"norm": None}, {"attention": "mssa", "bias": True}])
def test_angles_are_scipys(changes: dict) -> None:
    model = make(**changes)
    result = subspaces(model, n_random=10)
    assert result.matrix == ("U" if changes.get("attention") == "mssa" else "W_V")
    assert result.width == (12 if changes.get("norm", "") is None else 11)
    for first in np.ndindex(2, 3):
        basis = result.bases[first]
        np.testing.assert_allclose(basis.T @ basis, np.eye(4), atol=1e-12)
        weight = folded(model, *first)
        np.testing.assert_allclose(basis @ basis.T @ weight, weight, atol=1e-12)
        np.testing.assert_allclose(result.singular_values[first], np.linalg.svd(weight, compute_uv=False))
        for second in np.ndindex(2, 3):
            angles = subspace_angles(weight, folded(model, *second))[::-1]
            np.testing.assert_allclose(result.cosines[(*first, *second)], np.cos(angles), atol=1e-10)
            assert result.overlap[(*first, *second)] == pytest.approx((np.cos(angles) ** 2).sum())


def test_random_subspaces_are_as_they_are_drawn() -> None:
    """Mean and deviation of the overlap, and the law of the largest cosine, of randomly rotated subspaces."""
    result = subspaces(make(attention="mssa"), n_random=4000, seed=1)
    turned = ortho_group.rvs(result.width, size=4000, random_state=2)[:, :4, :4]
    overlap, largest = np.square(turned).sum((1, 2)), np.linalg.norm(turned, ord=2, axis=(1, 2))
    pair = (0, 1, 1, 2)
    assert result.random_mean[pair] == pytest.approx(16 / 11)
    assert result.random_std[pair] == pytest.approx(np.sqrt(2 * 16 * 49 / (11**2 * 10 * 13)))
    assert overlap.mean() == pytest.approx(result.random_mean[pair], abs=4 * overlap.std() / 4000**0.5)
    assert overlap.std() == pytest.approx(result.random_std[pair], rel=0.06)
    assert largest.mean() == pytest.approx(result.random_largest[pair], abs=6 * largest.std() / 4000**0.5)
    share = (largest >= result.cosines[(*pair, 0)]).mean()
    assert result.p_largest[pair] == pytest.approx(share, abs=0.05)
    z = (result.overlap[pair] - result.random_mean[pair]) / result.random_std[pair]
    assert result.z[pair] == pytest.approx(z)


def test_weights_behind_a_gain_overlap_by_the_gain() -> None:
    """Gaussian heads behind a steep gain overlap more than random subspaces, as the second null says."""
    model = make(n_layers=1, d_model=16)
    with torch.no_grad():
        model.blocks[0].ln1.w.copy_(torch.logspace(0, -2, 16))
    result = subspaces(model, n_random=1, n_weights=200)
    generator, overlaps = np.random.default_rng(0), []
    for _ in range(200):
        folded = (np.eye(16) - 1 / 16) * np.logspace(0, -2, 16) @ generator.normal(size=(2, 16, 4))
        overlaps.append((np.cos(subspace_angles(*folded)) ** 2).sum())
    error = np.std(overlaps) * (2 / 200) ** 0.5
    assert result.behind_gain_mean[0, 0, 0, 1] == pytest.approx(np.mean(overlaps), abs=4 * error)
    assert result.behind_gain_std[0, 0, 0, 1] == pytest.approx(np.std(overlaps), rel=0.25)
    assert result.behind_gain_mean[0, 0, 0, 1] > 1.5 * result.random_mean[0, 0, 0, 1]
    of_random, of_weights = [], []
    for seed in range(20):
        torch.manual_seed(seed)
        with torch.no_grad():
            model.blocks[0].attn.W_V.normal_()
        ratios = subspaces(model, n_random=1, n_weights=50).layer_ratios
        of_random.append(ratios[0])
        of_weights.append(ratios[1])
    assert np.mean(of_random) > 1.5 and np.mean(of_weights) == pytest.approx(1, abs=0.1)


def test_without_a_norm_both_nulls_agree() -> None:
    """Heads of full rank, of half rank and of none: the simulated mean is the exact one."""
    model = make(norm=None)
    with torch.no_grad():
        model.blocks[0].attn.W_V[1, :, 2:] = 0
        model.blocks[0].attn.W_V[2] = 0
    result = subspaces(model, n_random=1, n_weights=400)
    error = 4 * np.nan_to_num(result.random_std) / 400**0.5 + 1e-9
    pairs = ~np.eye(6, dtype=bool).reshape(2, 3, 2, 3)
    assert (np.abs(result.behind_gain_mean - result.random_mean) <= error)[pairs].all()
    np.testing.assert_allclose(result.behind_gain_std[pairs], np.nan_to_num(result.random_std)[pairs], rtol=0.2)


def test_random_weights_are_rarely_beyond_their_null() -> None:
    """The overlap of heads that are drawn at random has z of mean 0 and deviation 1 (no gain turns them)."""
    z, p_values = [], []
    for seed in range(12):
        torch.manual_seed(seed)
        model = AttentionOnlyTransformer(make().cfg)
        with torch.no_grad():
            for block in model.blocks:
                block.attn.W_V.normal_()
        result = subspaces(model, n_random=200)
        pairs = np.triu(np.ones((6, 6), dtype=bool), 1).reshape(2, 3, 2, 3)
        z.append(result.z[pairs])
        p_values.append(result.p_largest[pairs])
    z, p_values = np.concatenate(z), np.concatenate(p_values)
    assert abs(z.mean()) < 4 / len(z) ** 0.5 and z.std() == pytest.approx(1, abs=0.2)
    assert 0.01 < (p_values < 0.1).mean() < 0.2


def test_shared_and_missing_directions() -> None:
    """A head copied, a head without rank, and a head of fewer directions than it has columns."""
    model = make(norm=None)
    with torch.no_grad():
        W_V = model.blocks[0].attn.W_V
        W_V[1] = W_V[0] @ torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
        W_V[2] = 0
        model.blocks[1].attn.W_V[0, :, 2:] = model.blocks[1].attn.W_V[0, :, :2]
    result = subspaces(model, n_random=50)
    assert result.overlap[0, 0, 0, 1] == pytest.approx(4)
    assert result.p_largest[0, 0, 0, 1] == pytest.approx(1 / 51)
    assert result.ranks.tolist() == [[4, 4, 0], [2, 4, 4]]
    assert result.overlap[0, 2].max() == 0 and np.isnan(result.effective_ranks[0, 2])
    assert result.random_mean[1, 0, 1, 1] == pytest.approx(2 * 4 / 12)
    assert result.effective_ranks[1, 0] <= 2 + 1e-9
    assert "cannot all be orthogonal" in result.headline


def test_tables() -> None:
    result = subspaces(make(), n_random=10)
    frame = result.to_frame()
    assert len(frame) == 15 and frame.z.is_monotonic_decreasing
    top = frame.iloc[0]
    pair = tuple(int(top[name]) for name in ("first_layer", "first_head", "second_layer", "second_head"))
    assert top.overlap == pytest.approx(result.overlap[pair]) and top.largest_cosine == result.cosines[(*pair, 0)]
    heads = result.head_frame()
    others = [result.overlap[1, 1, 1, other] for other in (0, 2)]
    row = heads[(heads.layer == 1) & (heads["head"] == 1)].iloc[0]
    assert row.overlap == pytest.approx(np.mean(others)) and row.random_mean == pytest.approx(16 / 11)
    assert row.effective_rank == pytest.approx(result.effective_ranks[1, 1]) and 1 < row.effective_rank < 4
    alone = subspaces(make(n_heads=1, n_layers=1), n_random=10)
    assert alone.to_frame().empty and np.isnan(alone.head_frame().overlap).all()
    assert alone.headline == "the layer's 4 dimensions fit in 11"


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="n_random=0"):
        subspaces(make(), n_random=0)
    with pytest.raises(ValueError, match="n_weights=0"):
        subspaces(make(), n_weights=0)
    model = make(attention="mssa")
    with torch.no_grad():
        model.blocks[1].attn.U[0, 0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"U of this model .*not finite"):
        subspaces(model)
