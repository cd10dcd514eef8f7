"""Error by width: what the picture shows isn't pressed flat by a long interval."""

from __future__ import annotations

import numpy as np

from aotlens.plots.distillation import width_profiles

NAMES = ["linear", "4", "neighbours"]


def test_a_long_interval_leaves_the_picture():
    means = {"m": np.array([0.3, 0.5, np.nan])}
    intervals = {"m": np.array([[-3.0, 4.0], [0.1, 0.9], [np.nan, np.nan]])}
    figure = width_profiles(NAMES, 2, means, intervals)
    low, high = figure.layout.yaxis.range
    assert low == 0 and 1 < high < 1.2
    np.testing.assert_allclose(figure.data[0].error_y.array, [3.7, 0.4])


def test_errors_above_one_are_seen():
    means = {"m": np.array([0.3, 0.5, 0.4])}
    figure = width_profiles(NAMES, 2, means, {}, ("m 0.1", np.array([2.0, 0.5, np.nan])))
    assert figure.layout.yaxis.range[1] > 2
