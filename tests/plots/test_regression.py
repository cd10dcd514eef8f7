"""Figures of in-context regression show the errors that they were given."""

from __future__ import annotations

import numpy as np
import pytest

from aotlens.data import RegressionTask
from aotlens.denoise.regression import baseline_errors, one_step_interleaved, read_layers, support_scores
from aotlens.plots import layer_curves, plot, regression_curves

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
