"""Figures of distilled heads, with the numbers that they were given."""

from __future__ import annotations

import numpy as np
import pytest

from aotlens.plots.distillation import (
    Cloud,
    Costs,
    ErrorGrid,
    cost_curves,
    error_grids,
    head_clouds,
    learning_curves,
    width_profiles,
)
from tests.messages import refused


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_grid_has_a_cell_a_head(theme):
    errors = np.array([[0.1, 0.25], [np.nan, 1.3]])
    notes = [["<b>", ""], ["", ""]]
    figure = error_grids([ErrorGrid(key="m", name="m", errors=errors, notes=notes)], ("m", 0, 1), theme=theme)
    cells = figure.data[0]
    np.testing.assert_array_equal(cells.z, np.float32(errors))
    assert [list(row) for row in cells.text] == [["0.10", "0.25"], ["", "1.30"]]
    scale = figure.layout.coloraxis
    assert (scale.cmin, scale.cmax) == (0, 1) and cells.customdata[0][0][3] == "&lt;b&gt;"
    assert list(cells.x) == ["0", "1"] and list(cells.y) == ["0", "1"] and len(figure.layout.shapes) == 1


def test_lines_by_width_have_their_intervals():
    means = {"one": np.array([0.5, 0.3]), "two": np.array([0.6, 0.2])}
    figure = width_profiles(["linear", "16"], 2, means, {"two": np.array([[0.5, 0.8], [0.1, 0.4]])})
    one, _, two, _ = figure.data
    assert list(one.x) == ["linear", "16"] and one.error_y.array is None
    np.testing.assert_allclose(two.error_y.array, [0.2, 0.2])
    np.testing.assert_allclose(two.error_y.arrayminus, [0.1, 0.1])
    with pytest.raises(ValueError, match="one: expected 2 values, got 3"):
        width_profiles(["linear", "16"], 2, {"one": np.zeros(3)}, {})


def test_points_are_told_apart_by_kind_and_model():
    x, errors = np.array([0.1, 0.2, 0.9]), np.array([0.8, 0.7, 0.1])
    clouds = [
        Cloud(
            key=name, name=name, heads=[(0, 0), (0, 1), (1, 0)], errors=errors, kinds=["self", "1st", "self"],
            intervals=np.c_[errors - 0.1, errors + 0.2], x=(x,),
        )
        for name in "abcd"
    ]  # fmt: skip
    figure = head_clouds(clouds, ["attention"], kinds=["1st", "self", "mixed"])
    points = figure.data[:4]
    np.testing.assert_allclose(points[0].y, errors, rtol=1e-6)
    np.testing.assert_allclose(points[0].error_y.array, [0.2, 0.2, 0.2])
    colours = points[0].marker.color
    assert colours[0] == colours[2] != colours[1] and list(points[0].text) == [
        "a 0.0, self",
        "a 0.1, 1st",
        "a 1.0, self",
    ]
    assert len({trace.marker.symbol for trace in points}) == 4
    assert [trace.name for trace in figure.data[4:]] == ["1st", "self", "a", "b", "c", "d"], "no heads are mixed"


def test_costs_have_a_band_for_random_orders():
    rows = np.array([[1.0, 2.0, 3.0], [0.0, 4.0, 3.0]])
    curves = {"by error": np.array([0.1, 0.2, 3.0])}
    figure = cost_curves([Costs(name="m", sizes=[1, 2, 4], curves=curves, random=rows)])
    band, line = figure.data
    assert list(band.x) == [1, 2, 4, 4, 2, 1] and list(band.y) == [1, 4, 3, 3, 2, 0]
    np.testing.assert_allclose(line.y, [0.1, 0.2, 3.0], rtol=1e-6)
    assert "nats" in figure.layout.yaxis.title.text
    with refused("by error", 3, 2):
        cost_curves([Costs(name="m", sizes=[1, 2, 4], curves={"by error": np.zeros(2)}, random=rows[:, :2])])


def test_learning_curves_have_their_references():
    figure = learning_curves([10, 20], {"16 units": np.array([0.9, 0.5])}, {"linear": 0.7})
    np.testing.assert_allclose(figure.data[0].y, [0.9, 0.5], rtol=1e-6)
    assert figure.data[1].name == "linear 0.700" and figure.data[1].y == (0.7, 0.7)
    with pytest.raises(ValueError, match="16 units: expected 2 values"):
        learning_curves([10, 20], {"16 units": np.zeros(3)})
