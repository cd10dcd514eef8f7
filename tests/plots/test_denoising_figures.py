"""Figures of denoising results show their numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.denoise import (
    LinearSubspaces,
    TrainingSettings,
    audit,
    compare_with_bayes,
    denoising_rates,
    landscape,
    train_layers,
)
from aotlens.heads import subspaces
from aotlens.plots import audit_curves, denoiser_curves, loss_landscape, rate_map, snr_curves, subspace_overlaps
from tests.small_models import SMALL, maker

TASK = LinearSubspaces(n=4, d=2)


def test_overlaps_are_on_a_scale_of_random_subspaces() -> None:
    model = maker({**SMALL, "d_head": 4})()
    with torch.no_grad():
        model.blocks[1].attn.W_V[2] = 0
    result = subspaces(model, n_random=10)
    values = subspace_overlaps(result).data[0].z
    expected = np.log2(result.overlap[0, 1, 1, 0] / result.random_mean[0, 1, 1, 0])
    assert values[1, 3] == pytest.approx(expected, rel=1e-5) and values[3, 1] == pytest.approx(expected, rel=1e-5)
    assert np.diag(values).tolist() == [0] * 6 and not values[5].any()
    behind_gain = subspace_overlaps(result, behind_gain=True).data[0].z
    expected = np.log2(result.overlap[0, 1, 1, 0] / result.behind_gain_mean[0, 1, 1, 0])
    assert behind_gain[1, 3] == pytest.approx(expected, rel=1e-5) and not behind_gain[5].any()


def test_snr_stands_beside_the_theorem() -> None:
    rates = denoising_rates([0.05, 0.3], n_clusters=2, rank=4, n_tokens=6, d_model=10, n_layers=3, seeds=[0, 1])
    lines = {trace.name: trace for trace in snr_curves(rates).data if trace.name}
    assert list(lines) == ["δ = 0.05", "δ = 0.3", "(1 + ητ)^l"]
    np.testing.assert_allclose(lines["(1 + ητ)^l"].y, 1.3 ** np.arange(4))
    gain = (rates.snr[1] / rates.snr[1, :, :1]).mean(-1).mean(0)
    np.testing.assert_allclose(lines["δ = 0.3"].y, gain.numpy())
    plain = denoising_rates(
        [0.1], n_clusters=2, rank=4, n_tokens=6, d_model=10, n_layers=3, seeds=[0], phi="softmax", threshold=None
    )
    excess = (rates.ratios / 1.3 - 1).mean((1, 3)).clamp(-1, 1)
    np.testing.assert_allclose(rate_map(rates).data[0].z, excess.numpy(), atol=1e-6)
    with pytest.raises(ValueError, match="without a threshold"):
        rate_map(plain)
    assert [trace.name for trace in snr_curves(plain).data if trace.name] == ["δ = 0.1"]


def test_an_audit_stands_beside_its_rotations() -> None:
    result = audit(maker(SMALL)(), torch.randint(11, (4, 8), generator=torch.Generator().manual_seed(0)), n_draws=3)
    lines = {trace.name: trace for trace in audit_curves(result).data if trace.name}
    assert list(lines)[:2] == ["all tokens", "all tokens, writes rotated"] and len(lines) == 6
    np.testing.assert_allclose(lines["pattern"].y, result.ratios[2].numpy())
    np.testing.assert_allclose(lines["subspace, writes rotated"].y, result.null_ratios[:, 1].mean(0).numpy())
    assert lines["pattern"].x.tolist() == [0.5, 1.0]
    assert len([trace for trace in audit_curves(result, principal=True).data if trace.name]) == 4


def test_training_stands_beside_bayes() -> None:
    settings = TrainingSettings(n_prompts=20, batch_size=10, n_context=8, n_epochs=3, n_test_prompts=10)
    layers = train_layers(TASK, "linear", settings, seeds=(0, 1))
    training = compare_with_bayes(layers)
    figure = denoiser_curves(training)
    lines = {trace.name: trace for trace in figure.data if trace.name}
    np.testing.assert_allclose(lines["other prompts"].y, layers.test_loss.mean(0).numpy(), rtol=1e-6)
    np.testing.assert_allclose(lines["training"].y, layers.train_loss.mean(0).numpy(), rtol=1e-6)
    assert lines["training"].x.tolist() == [1, 2, 3] and lines["other prompts"].x.tolist() == [0, 1, 2, 3]
    assert [shape.y0 for shape in figure.layout.shapes] == [training.baselines["Bayes"], training.baselines["zero"]]
    assert not denoiser_curves(layers).layout.shapes


def test_the_landscape_has_its_best_line_and_points() -> None:
    alphas, betas = torch.linspace(-1, 2, 7).double(), torch.linspace(0.1, 3, 5).double()
    surface = landscape(TASK.sample(50, 9), alphas, betas)
    figure = loss_landscape(surface, points={"trained <b>": (0.9, 1.1)})
    heat, line, point = figure.data
    np.testing.assert_allclose(heat.z, surface.loss.log10().numpy(), rtol=1e-5)
    np.testing.assert_allclose(line.y, surface.best_alpha.numpy())
    assert (point.x[0], point.y[0]) == (1.1, 0.9) and "<b>" not in point.name
