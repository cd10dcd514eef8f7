"""Figures of compiled networks: what is drawn is what was given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aotlens.distill.compile import attention_masks, compile_ffn, head_at_input, head_gate
from aotlens.distill.compile.curves import error_curve, error_surface
from aotlens.distill.compile.examples import interpolate, on_each_coordinate
from aotlens.plots import error_lines, error_surfaces, gate, head_pattern, mask_maps


@pytest.fixture(scope="module")
def hat():
    return interpolate([-1, 0, 1], [0, 1, 0])


def test_errors_of_one_number(hat):
    compiled = compile_ffn(hat, bound=2, tolerance=0.1)
    curve = error_curve(compiled, 51, target="square")
    figure = error_lines(curve, at=0.5, theme="dark")
    traces = {trace.name: trace for trace in figure.data}
    np.testing.assert_array_equal(traces["|model − FFN|"].y, curve.error)
    np.testing.assert_allclose(traces["fitted to"].y, curve.x**2)
    assert list(traces["proven bound"].y) == [compiled.proven_error] * 2
    assert [shape.x0 for shape in figure.layout.shapes[:3]] == pytest.approx([-1, -1, 0])  # both rows
    assert set(np.round([shape.x0 for shape in figure.layout.shapes], 9)) == {-1, 0, 1, 0.5}
    logarithmic = error_lines(replace(curve, target=None), log=True)
    drawn = np.asarray(logarithmic.data[2].y)
    assert np.isnan(drawn[curve.error == 0]).all() and logarithmic.layout.yaxis2.type == "log"


def test_a_zoom_stays_while_only_eta_changes(hat):
    compiled = compile_ffn(hat, bound=2, tolerance=0.1)
    first, second = (error_lines(error_curve(each)) for each in (compiled, compiled.with_etas([0.3])))
    other = error_lines(error_curve(compile_ffn(interpolate([-1, 0, 1], [0, 2, 0]), bound=2, tolerance=0.1)))
    assert first.layout.uirevision == second.layout.uirevision != other.layout.uirevision


@pytest.mark.parametrize("log", [False, True])
def test_errors_of_two_numbers(hat, log: bool):
    compiled = compile_ffn(on_each_coordinate(hat, 2), bound=2, tolerance=0.1)
    surface = error_surface(compiled, 21)
    assert {tuple(line.ravel()) for line in surface.kinks} == {
        *((x, -2.0, x, 2.0) for x in (-1.0, 0.0, 1.0)),
        *((-2.0, x, 2.0, x) for x in (-1.0, 0.0, 1.0)),
    }
    figure = error_surfaces(surface, at=(0.5, 1.0), log=log)
    np.testing.assert_allclose(figure.data[0].z, surface.ffn, rtol=1e-6)
    assert len(figure.data) == 2 + 2 * (6 + 1)
    assert np.isfinite(np.asarray(figure.data[1].z)).all() and figure.data[1].zmin < figure.data[1].zmax
    top = compiled.proven_error
    assert figure.data[1].zmax == pytest.approx(np.log10(top) if log else top)


def test_a_gate_is_drawn_once_in_full_and_once_near_0(hat):
    compiled = compile_ffn(hat, bound=2, tolerance=0.1).with_etas([0.1])
    result = head_gate(compiled, "0.1", [0.5])
    figure = gate(result)
    assert figure.layout.xaxis.range == pytest.approx((result.t.min(), result.t.max()))
    assert figure.layout.xaxis2.range == pytest.approx((-0.8, 0.8))
    assert sum(bool(trace.showlegend) for trace in figure.data) == len(figure.data) / 2 == 5
    circles = next(trace for trace in figure.data if trace.name == "the model's head")
    np.testing.assert_allclose(circles.y, np.sort(result.result), atol=0.05)
    assert list(circles.x) == sorted(result.read)
    silu = gate(replace(result, gap=None))
    assert [trace.name for trace in silu.data] == ["SiLU(t)", "the model's head", "weight σ(t/η)"]


def test_masks_have_a_picture_each_and_a_pattern_its_numbers(hat):
    compiled = compile_ffn(hat, bound=2, tolerance=0.1, n_tokens=2)
    figure = mask_maps(attention_masks(compiled), theme="dark")
    assert [np.asarray(trace.z).sum() for trace in figure.data] == [3, 5]
    assert [note.text for note in figure.layout.annotations][1] == "3 heads:<br>itself and the auxiliary token"
    result = head_at_input(compiled, "0.1", [0.5])
    drawn, texts = head_pattern(result).data
    np.testing.assert_allclose(np.nan_to_num(drawn.z), result.pattern, rtol=1e-6)
    assert np.isnan(np.asarray(drawn.z)).sum() == (~result.visible).sum()
    assert [text for text in texts.text if text] == [f"{entry:.3f}" for entry in result.pattern[result.visible]]
