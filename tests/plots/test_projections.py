"""The plot of projections has a series for each cloud and the fitted line."""

from __future__ import annotations

import numpy as np
import pytest

from aotlens.plots.projections import distortion_plot


def test_points_and_fitted_lines() -> None:
    n, m = np.array([10, 10, 50, 50]), np.array([64, 256, 64, 256])
    figure = distortion_plot(n, m, np.array([0.6, 0.3, 0.8, 0.4]), 4.0, theme="dark")
    points = [trace for trace in figure.data if trace.mode == "markers"]
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert [trace.name for trace in points] == ["10 points", "50 points"]
    assert list(points[1].y) == [0.8, 0.4]
    np.testing.assert_allclose(lines[1].y, np.sqrt(4 * np.log(50) / np.array([64, 256])))
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"


def test_nothing_to_draw_is_refused() -> None:
    nothing = np.array([], dtype=np.int64)
    with pytest.raises(ValueError, match="expected projections"):
        distortion_plot(nothing, nothing, np.array([]), 1.0)
