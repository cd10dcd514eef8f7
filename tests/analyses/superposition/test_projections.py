"""The plot of projections has a series for each cloud and the fitted line."""

from __future__ import annotations

import numpy as np
import pytest

from analyses._superposition.projections import angle_plot, distortion_plot


def test_points_and_fitted_lines() -> None:
    n, m = np.array([10, 10, 50, 50]), np.array([64, 256, 64, 256])
    figure = distortion_plot(n, m, np.array([0.6, 0.3, 0.8, 0.4]), 4.0, theme="dark")
    points = [trace for trace in figure.data if trace.mode == "markers"]
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert [trace.name for trace in points] == ["10 points", "50 points"]
    assert list(points[1].y) == [0.8, 0.4]
    np.testing.assert_allclose(lines[1].y, np.sqrt(4 * np.log(50) / np.array([64, 256])))
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert list(figure.layout.xaxis.tickvals) == [64, 256] and lines[0].name == "√(C · log 10 / m), C = 4.00"


def test_angles_lie_under_their_bound() -> None:
    n, epsilon = np.array([10, 10, 50]), np.array([0.2, 0.5, 1.3])
    figure = angle_plot(n, epsilon, np.array([0.1, 0.3, 0.6]))
    bound = figure.data[-1]
    assert [trace.name for trace in figure.data] == ["10 points", "50 points", "4ε/(1 − ε)"]
    np.testing.assert_allclose(bound.y, 4 * np.array(bound.x) / (1 - np.array(bound.x)))
    assert min(bound.x) == pytest.approx(0.2) and max(bound.x) == pytest.approx(0.9)  # none for ε ≥ 1


def test_nothing_to_draw_is_refused() -> None:
    nothing = np.array([], dtype=np.int64)
    with pytest.raises(ValueError, match="expected projections"):
        distortion_plot(nothing, nothing, np.array([]), 1.0)
    with pytest.raises(ValueError, match="expected projections"):
        angle_plot(nothing, np.array([]), np.array([]))
