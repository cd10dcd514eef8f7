"""Figures of in-context regression show the errors that they were given."""

from __future__ import annotations

import numpy as np
import pytest

from aotlens.data import RegressionTask
from aotlens.denoise.regression import baseline_errors, one_step_interleaved, read_layers
from aotlens.plots import layer_curves, regression_curves

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


def test_a_logarithm_leaves_out_what_is_zero() -> None:
    exact = baseline_errors("least squares", TASK, n_prompts=60)
    line = regression_curves(exact, log=True).data[-1]
    assert list(line.x) == [0, 1] and min(line.y) > 1e-5


def test_layers_stand_beside_their_nearest_algorithms() -> None:
    readings = read_layers(one_step_interleaved(2, 5, 2.0), TASK, n_prompts=100, n_steps=2)
    names = [trace.name for trace in layer_curves(readings).data]
    assert names[:3] == ["before layer 0", "after layer 0", "after layer 1"]
    assert "gradient descent, 1 step" in names and names[-1] == "least squares"
