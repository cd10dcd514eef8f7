"""Queries on an energy: what is drawn is what was given."""

from __future__ import annotations

import numpy as np
import pytest

from aotlens.plots.descent import energy_landscape, errors_by_step
from aotlens.plots.identities import scaled_identities
from tests.messages import refused

X, Y = np.linspace(-2, 2, 5), np.linspace(-1, 1, 4)
PATH = np.array([[1.0, 0.5], [0.6, 0.4], [0.5, 0.4]])


def test_the_landscape_has_the_energy_the_tokens_and_the_query_on_its_way():
    energy = X[None] ** 2 + Y[:, None]
    context, attention, bayes = np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([0.2, 0.3]), np.array([0.1, 0.7])
    figure = energy_landscape(
        X, Y, energy, context=context, path=PATH, attention=attention, points={"Bayes": bayes}
    )  # fmt: skip
    traces = {trace.name: trace for trace in figure.data}
    np.testing.assert_allclose(traces["energy"].z, energy, rtol=1e-6)
    np.testing.assert_allclose(np.stack([traces["context"].x, traces["context"].y], 1), context)
    np.testing.assert_allclose(np.stack([traces["2 steps"].x, traces["2 steps"].y], 1), PATH)
    arrow = traces["attention, one step"]
    assert (list(arrow.x), list(arrow.y)) == ([1.0, 0.2], [0.5, 0.3])
    assert (traces["Bayes"].x[0], traces["Bayes"].y[0]) == (0.1, 0.7)
    assert (traces["query"].x[0], traces["query"].y[0]) == (1.0, 0.5)
    assert figure.data[-1].name == "query", "it lies on top, where a pointer finds it"
    assert figure.layout.yaxis.scaleanchor == "x" and figure.layout.dragmode is False
    still = energy_landscape(X, Y, energy, context=context, path=PATH[:1], attention=attention)
    assert "steps" not in " ".join(trace.name for trace in still.data)


def test_errors_stand_beside_their_levels():
    mean, single = np.array([1.0, 0.4, 0.7]), np.array([2.0, 0.1, 0.2])
    figure = errors_by_step(mean, levels={"Bayes": 0.3, "zero": 1.5}, single=single)
    assert [list(trace.y) for trace in figure.data] == [list(mean), list(single)]
    assert [shape.y0 for shape in figure.layout.shapes] == [0.3, 1.5]
    assert [note.text for note in figure.layout.annotations] == ["Bayes 0.3", "zero 1.5"]
    assert len(errors_by_step(mean, levels={}).data) == 1
    assert figure.layout.yaxis.type is None
    growing = errors_by_step(np.array([1.0, 10.0, 1000.0]), levels={"Bayes": 0.1}).layout
    assert growing.yaxis.type == "log"
    assert growing.shapes[0].y0 == 0.1 and growing.annotations[0].y == pytest.approx(-1)
    with refused("3 errors", 2):
        errors_by_step(mean, levels={}, single=single[:2])


def test_matrices_stand_beside_their_scaled_identities():
    first, second = np.array([[2.0, 0.5], [0.0, 4.0]]), np.array([[-1.0, 0.0], [3.0, -1.0]])
    figure = scaled_identities({"W_QK": first, "W_OV": second}, {"W_QK": "β", "W_OV": "α"})
    for trace, values in zip(figure.data, (first, 3 * np.eye(2), second, -np.eye(2)), strict=True):
        np.testing.assert_allclose(trace.z, values)
    assert [(trace.zmin, trace.zmax) for trace in figure.data] == [(-4, 4), (-4, 4), (-3, 3), (-3, 3)]
    titles = [note.text for note in figure.layout.annotations]
    assert titles == ["<b>W_QK</b>", "<b>β I, β = 3</b>", "<b>W_OV</b>", "<b>α I, α = -1</b>"]
    assert figure.layout.yaxis.domain[0] > figure.layout.yaxis3.domain[1], "the first matrix stands on top"
    with pytest.raises(ValueError, match="expected W_QK square, got \\[2, 3\\]"):
        scaled_identities({"W_QK": np.zeros((2, 3))}, {"W_QK": "β"})
    with pytest.raises(ValueError, match="a scale's name for each"):
        scaled_identities({"W_QK": first}, {})
