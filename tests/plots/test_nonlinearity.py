"""Figures of compiled networks: what is drawn is what was given."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from aotlens.distill.compile import compile_ffn
from aotlens.distill.compile.curves import error_curve, error_surface, gate_curve, kink_lines
from aotlens.distill.compile.examples import interpolate, on_each_coordinate
from aotlens.plots import error_lines, error_surfaces, gate, mask_maps


@pytest.fixture(scope="module")
def hat():
    return interpolate([-1, 0, 1], [0, 1, 0])


def test_errors_of_one_number(hat):
    compiled = compile_ffn(hat, bound=2, tolerance=0.1)
    curve = error_curve(compiled, 51)
    figure = error_lines(curve, compiled.proven_error, at=0.5, target=curve.ffn[:, 0], theme="dark")
    traces = {trace.name: trace for trace in figure.data}
    np.testing.assert_array_equal(traces["|model − FFN|"].y, curve.error)
    assert [shape.x0 for shape in figure.layout.shapes[:3]] == pytest.approx([-1, -1, 0])  # both rows
    assert set(np.round([shape.x0 for shape in figure.layout.shapes], 9)) == {-1, 0, 1, 0.5}
    logarithmic = error_lines(curve, compiled.proven_error, log=True)
    shown = np.asarray(logarithmic.data[2].y)
    assert np.isnan(shown[curve.error == 0]).all() and logarithmic.layout.yaxis2.type == "log"


@pytest.mark.parametrize("log", [False, True])
def test_errors_of_two_numbers(hat, log: bool):
    compiled = compile_ffn(on_each_coordinate(hat, 2), bound=2, tolerance=0.1)
    surface, lines = error_surface(compiled, 21), kink_lines(compiled.ffn, 2)
    assert {tuple(line.ravel()) for line in lines} == {
        *((x, -2.0, x, 2.0) for x in (-1.0, 0.0, 1.0)),
        *((-2.0, x, 2.0, x) for x in (-1.0, 0.0, 1.0)),
    }
    drawn = [(line[:, 0].tolist(), line[:, 1].tolist()) for line in lines]
    figure = error_surfaces(surface, compiled.proven_error, kinks=drawn, at=(0.5, 1.0), log=log)
    np.testing.assert_allclose(figure.data[0].z, surface.ffn, rtol=1e-6)
    assert len(figure.data) == 2 + 2 * (6 + 1)
    assert np.isfinite(np.asarray(figure.data[1].z)).all() and figure.data[1].zmin < figure.data[1].zmax


def test_a_gate_is_drawn_once_in_full_and_once_near_0():
    t, weight = gate_curve(0.1, reach=3.0)
    np.testing.assert_allclose(weight, expit(t / 0.1), atol=1e-15)
    figure = gate(t, weight, eta=0.1, gap=0.02785, measured=(t[:5], t[:5] * weight[:5]), at=0.2)
    assert figure.layout.xaxis.range == (-3.0, 3.0) and figure.layout.xaxis2.range == pytest.approx((-0.8, 0.8))
    assert sum(bool(trace.showlegend) for trace in figure.data) == len(figure.data) / 2 == 5
    silu = gate(t, weight, eta=1)
    assert [trace.name for trace in silu.data] == ["SiLU(t)", "weight σ(t/η)"]


def test_masks_have_a_picture_each():
    masks = {"itself": np.eye(3, dtype=bool), "all": np.ones((3, 3), dtype=bool)}
    figure = mask_maps(masks, ["a", "b", "c"], theme="dark")
    assert [np.asarray(trace.z).sum() for trace in figure.data] == [3, 9]
    assert [note.text for note in figure.layout.annotations] == list(masks)
