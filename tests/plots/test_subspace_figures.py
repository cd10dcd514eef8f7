"""Figures of tokens layer by layer: every layer is a frame, and what it holds is that layer's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aotlens.plots.colours import LINES
from aotlens.plots.subspaces import membership_maps, snr_by_layer, token_clouds

LABELS = np.array([0, 0, 1, 1, 1, 2])


@pytest.fixture(scope="module")
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("n_axes", [2, 3])
def test_a_cloud_has_a_frame_for_each_layer_and_stands_at_the_chosen_one(rng, n_axes: int):
    points = rng.normal(size=(4, 6, n_axes))
    figure = token_clouds(points, LABELS, ("own", "other", "third")[:n_axes], layer=2)
    assert [frame.name for frame in figure.frames] == ["0", "1", "2", "3"]
    for layer, frame in enumerate(figure.frames):
        assert frame.traces == (0,)
        for axis in range(n_axes):
            np.testing.assert_allclose(frame.data[0]["xyz"[axis]], points[layer, :, axis], rtol=1e-6)
    cloud = figure.data[0]
    np.testing.assert_allclose(cloud.y, points[2, :, 1], rtol=1e-6)
    assert list(cloud.marker.color) == [LINES["light"][label] for label in LABELS]
    assert [trace.name for trace in figure.data[1:]] == ["1", "2", "3"]
    low, high = (figure.layout.scene.xaxis if n_axes == 3 else figure.layout.xaxis).range
    assert low < points[..., 0].min() and high > points[..., 0].max()


def test_the_snr_has_its_theory_the_exact_layers_and_a_line_at_the_layer():
    snr = np.array([[2.0, 4.0], [2.6, 5.2], [1.0, np.inf]])
    figure = snr_by_layer(snr, rate=1.3, exact_layers=1, layer=1)
    clusters, theory, mark = figure.data[:2], figure.data[2], figure.data[3]
    np.testing.assert_allclose(clusters[0].y, snr[:, 0])
    np.testing.assert_array_equal(np.isnan(clusters[1].y), [False, False, True])  # a logarithm does not have it
    np.testing.assert_allclose(theory.y, 3.0 * 1.3 ** np.arange(3))
    assert (figure.layout.shapes[0].x0, figure.layout.shapes[0].x1) == (0, 1)
    assert list(mark.x) == [1, 1]
    assert [list(frame.data[0].x) for frame in figure.frames] == [[0, 0], [1, 1], [2, 2]]
    assert all(frame.traces == (3,) for frame in figure.frames)
    assert list(figure.layout.yaxis.ticktext) == ["1", "2", "5"]
    without = snr_by_layer(snr)
    assert len(without.data) == 3 and not without.layout.shapes


def test_memberships_are_parted_at_the_clusters(rng):
    patterns = rng.uniform(size=(3, 6, 6))
    figure = membership_maps(patterns, LABELS, layer=1)
    np.testing.assert_allclose(figure.data[0].z, patterns[1], rtol=1e-6)
    for layer, frame in enumerate(figure.frames):
        np.testing.assert_allclose(frame.data[0].z, patterns[layer], rtol=1e-6)
    assert figure.data[0].zmin == 0 and figure.data[0].zmax == pytest.approx(patterns.max())
    assert {shape.x0 for shape in figure.layout.shapes if shape.x0 == shape.x1} == {1.5, 4.5}
    assert list(figure.layout.xaxis.tickvals) == [0.5, 3, 5]


@pytest.mark.parametrize(
    ("draw", "given", "message"),
    [
        (token_clouds, (np.zeros((2, 6, 4)), LABELS, ("a",) * 4), "points \\[layer, n, 2 or 3\\]"),
        (token_clouds, (np.zeros((2, 6, 3)), LABELS, ("a", "b")), "a title an axis"),
        (membership_maps, (np.zeros((2, 6, 5)), LABELS), "patterns \\[layer, n, n\\]"),
    ],
)
def test_what_does_not_fit_is_refused(draw: Any, given: Any, message: str):
    with pytest.raises(ValueError, match=message):
        draw(*given)


def test_a_layer_that_there_is_not_is_refused():
    for draw, given in ((snr_by_layer, [np.ones((3, 2))]), (membership_maps, [np.ones((3, 6, 6)), LABELS])):
        with pytest.raises(ValueError, match="layer=3: expected 0 to 2"):
            draw(*given, layer=3)
