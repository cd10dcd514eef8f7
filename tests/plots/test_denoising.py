"""Figures of denoising and of in-context regression show their numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.data import RegressionTask
from aotlens.denoise import (
    LinearSubspaces,
    TrainingSettings,
    audit,
    compare_with_bayes,
    denoising_rates,
    landscape,
    train_layers,
)
from aotlens.denoise.regression import baseline_errors, one_step_interleaved, read_layers, support_scores
from aotlens.heads import subspaces
from aotlens.plots import (
    audit_curves,
    denoiser_curves,
    layer_curves,
    loss_landscape,
    plot,
    rate_map,
    regression_curves,
    snr_curves,
    subspace_overlaps,
)
from tests.small_models import SMALL, maker

SUBSPACES = LinearSubspaces(n=4, d=2)


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
    layers = train_layers(SUBSPACES, "linear", settings, seeds=(0, 1))
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
    surface = landscape(SUBSPACES.sample(50, 9), alphas, betas)
    figure = loss_landscape(surface, points={"trained <b>": (0.9, 1.1)})
    heat, line, point = figure.data
    np.testing.assert_allclose(heat.z, surface.loss.log10().numpy(), rtol=1e-5)
    np.testing.assert_allclose(line.y, surface.best_alpha.numpy())
    assert (point.x[0], point.y[0]) == (1.1, 0.9) and "<b>" not in point.name


TASK = RegressionTask(d=2)


def test_a_line_and_a_band_for_each_but_the_quiet() -> None:
    results = [baseline_errors(name, TASK, n_prompts=60) for name in ("averaging", "least squares")]
    figure = regression_curves(results, quiet=["least squares"])
    lines = {trace.name: trace for trace in figure.data if trace.name}
    np.testing.assert_allclose(lines["averaging"].y, results[0].mean)
    assert lines["least squares"].line.dash == "dash" and lines["averaging"].line.dash == "solid"
    bands = [trace for trace in figure.data if not trace.name]
    assert len(bands) == 1
    np.testing.assert_allclose(bands[0].y[: len(results[0].mean)], results[0].bands[:, 1])
    with pytest.raises(ValueError, match="at least one"):
        regression_curves([])


def test_a_linear_axis_cuts_off_quiet_lines_alone() -> None:
    averaging, exact = (baseline_errors(name, RegressionTask(d=5), n_prompts=60) for name in ("averaging", "zero"))
    assert averaging.mean.max() > 2
    cut = regression_curves([exact, averaging], quiet=["averaging"])
    assert cut.layout.yaxis.range[1] == pytest.approx(1.08 * max(1, exact.bands.max()))
    assert regression_curves([exact, averaging]).layout.yaxis.range is None
    assert regression_curves([exact, averaging], quiet=["averaging"], log=True).layout.yaxis.range is None


def test_heads_stand_with_their_intervals() -> None:
    scores = support_scores(one_step_interleaved(4, 6, 1.0), RegressionTask(d=4, n_nonzero=2), n_prompts=40)
    figure = plot(scores)
    y = {name: value for trace in figure.data for name, value in zip(trace.text, trace.y, strict=True)}
    assert y == pytest.approx({f"{layer}.0": float((scores.on - scores.off)[layer, 0]) for layer in range(2)})
    trace = next(trace for trace in figure.data if "1.0" in trace.text)
    place = list(trace.text).index("1.0")
    assert trace.error_y.array[place] == pytest.approx(1.96 * scores.standard_error[1, 0])
    filled = {name for name in figure.data[0].text}
    assert figure.data[0].marker.symbol == "circle"
    assert filled == {f"{layer}.0" for layer in range(2) if abs(scores.z[layer, 0]) > 1.96}


def test_a_logarithm_leaves_out_what_is_zero() -> None:
    exact = baseline_errors("least squares", TASK, n_prompts=60)
    line = regression_curves(exact, log=True).data[-1]
    assert list(line.x) == [0, 1] and min(line.y) > 1e-5


def test_layers_stand_beside_their_nearest_algorithms() -> None:
    readings = read_layers(one_step_interleaved(2, 5, 2.0), TASK, n_prompts=100, n_steps=2)
    names = [trace.name for trace in layer_curves(readings).data]
    assert names[:3] == ["before layer 0", "after layer 0", "after layer 1"]
    assert "gradient descent, 1 step" in names and names[-1] == "least squares"
