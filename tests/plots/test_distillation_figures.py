"""Figures of distilled heads, with the numbers that they were given."""

from __future__ import annotations

import numpy as np
import pytest

from aotlens.plots.distillation import (
    error_against,
    error_by_width,
    error_grid,
    learning_curves,
    substitution_curves,
)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_grid_has_a_cell_a_head(theme):
    errors = np.array([[0.1, 0.25], [np.nan, 1.3]])
    figure = error_grid(errors, notes=[["<b>", ""], ["", ""]], theme=theme)
    cells = figure.data[0]
    np.testing.assert_array_equal(cells.z, np.float32(errors))
    assert [list(row) for row in cells.text] == [["0.10", "0.25"], ["", "1.30"]]
    assert (cells.zmin, cells.zmax) == (0, 1) and cells.customdata[0][0] == "&lt;b&gt;"
    assert list(cells.x) == ["0", "1"] and list(cells.y) == ["0", "1"]
    with pytest.raises(ValueError, match="expected notes for 2 × 2 heads"):
        error_grid(errors, notes=[["a"]])


def test_lines_by_width_have_their_intervals_and_floors():
    means = {"one": np.array([0.5, 0.3]), "two": np.array([0.6, 0.2])}
    figure = error_by_width([0, 16], means, {"two": np.array([[0.5, 0.8], [0.1, 0.4]])}, {"one": 0.25})
    assert list(figure.data[0].x) == ["linear", "16"] and figure.data[0].error_y.array is None
    np.testing.assert_allclose(figure.data[1].error_y.array, [0.2, 0.2])
    np.testing.assert_allclose(figure.data[1].error_y.arrayminus, [0.1, 0.1])
    assert figure.layout.shapes[0].y0 == 0.25
    with pytest.raises(ValueError, match="one: expected 2 values"):
        error_by_width([0, 16], {"one": np.zeros(3)})


def test_points_are_told_apart_by_kind():
    x, errors = np.array([0.1, 0.2, 0.9]), np.array([0.8, 0.7, 0.1])
    figure = error_against(
        x,
        errors,
        ["a", "b", "c"],
        ["self", "first", "self"],
        x_title="attention",
        intervals=np.c_[errors - 0.1, errors + 0.2],
    )
    assert [trace.name for trace in figure.data] == ["self", "first"]
    assert list(figure.data[0].text) == ["a", "c"] and list(figure.data[1].text) == ["b"]
    np.testing.assert_allclose(figure.data[0].y, [0.8, 0.1], rtol=1e-6)
    np.testing.assert_allclose(figure.data[0].error_y.array, [0.2, 0.2])
    assert figure.data[0].marker.symbol != figure.data[1].marker.symbol
    with pytest.raises(ValueError, match="expected one of each, got 3, 3, 1, 3"):
        error_against(x, errors, ["a"], ["b"] * 3, x_title="")


def test_costs_have_a_band_for_random_orders():
    rows = np.array([[1.0, 2.0, 3.0], [0.0, 4.0, 3.0]])
    figure = substitution_curves([1, 2, 4], {"by error": np.array([0.1, 0.2, 3.0])}, {"random": rows})
    band, line = figure.data
    assert list(band.x) == [1, 2, 4, 4, 2, 1] and list(band.y) == [1, 4, 3, 3, 2, 0]
    np.testing.assert_allclose(line.y, [0.1, 0.2, 3.0], rtol=1e-6)
    assert "nats" in figure.layout.yaxis.title.text
    with pytest.raises(ValueError, match="by error: expected 3 values"):
        substitution_curves([1, 2, 4], {"by error": np.zeros(2)})
    with pytest.raises(ValueError, match="random: expected 3 sizes"):
        substitution_curves([1, 2, 4], {}, {"random": np.zeros((2, 2))})


def test_learning_curves_have_their_references():
    figure = learning_curves([10, 20], {"16 units": np.array([0.9, 0.5])}, {"linear": 0.7})
    np.testing.assert_allclose(figure.data[0].y, [0.9, 0.5], rtol=1e-6)
    assert figure.data[1].name == "linear 0.700" and figure.data[1].y == (0.7, 0.7)
    with pytest.raises(ValueError, match="16 units: expected 2 values"):
        learning_curves([10, 20], {"16 units": np.zeros(3)})
