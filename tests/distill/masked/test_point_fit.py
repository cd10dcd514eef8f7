"""Lemma H.4: a network through points."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from aotlens.distill import compile_ffn, point_fit
from tests.distill.compile.networks import unchecked_shapes
from tests.messages import refused


@settings(max_examples=40)
@given(n=st.integers(1, 30), d=st.integers(1, 5), seed=st.integers(0, 2**31), scale=st.sampled_from([1e-3, 1.0, 1e4]))
def test_it_goes_through_the_points(n, d, seed, scale):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64) * scale
    y = torch.randn(n, generator=generator, dtype=torch.float64)
    fit = point_fit(x, y, seed=seed)
    assert fit.ffn.widths == (3 * n,) and fit.ffn.d_out == 1
    assert_close(fit(x), y, atol=1e-14 * n * max(fit.condition, 1.0), rtol=0)
    assert_close(fit.errors, (fit(x) - y).abs())
    if n > 1:
        distances = np.abs(np.subtract.outer(*[(x @ fit.direction).numpy()] * 2))
        assert fit.gap == pytest.approx(distances[~np.eye(n, dtype=bool)].min(), rel=1e-12)
        assert fit.sharpness > 2 / fit.gap


def test_triangles_between_the_points():
    """By hand: y_i max(0, 1 − K|x − x_i|), on the whole line."""
    x, y = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([2.0, -1.0, 5.0])
    fit = point_fit(x, y)
    assert fit.gap == 1.0 and fit.sharpness == pytest.approx(2.0, rel=1e-5)
    line = np.linspace(-2, 5, 701)
    sharpness = fit.sharpness
    expected = sum(
        height * np.maximum(0, 1 - sharpness * np.abs(line - at))
        for at, height in zip((0, 1, 3), (2, -1, 5), strict=True)
    )
    assert_close(fit(torch.from_numpy(line)[:, None]), torch.from_numpy(expected), atol=1e-12, rtol=0)


def test_it_compiles():
    x, y = torch.randn(5, 3), torch.randn(5)
    fit = point_fit(x, y)
    compiled = compile_ffn(fit.ffn, bound=4, tolerance=1e-3)
    assert_close(compiled(x)[:, 0], y.double(), atol=1e-3, rtol=0)
    assert compiled.heads_per_layer == (16,)


def test_points_that_cannot_be_told_apart_are_named():
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]])
    with pytest.raises(ValueError, match="points 0 and 2 are equal"):
        point_fit(x, torch.zeros(3))
    with pytest.raises(ValueError, match="points 0 and 2 are equal"):
        point_fit(torch.tensor([[0.0], [1.0], [-0.0]]), torch.zeros(3))
    near = torch.tensor([[1.0], [2.0], [1.0 + 2**-52]], dtype=torch.float64)
    with refused("points 0 and 2"):
        point_fit(near, torch.zeros(3))
    with refused("points 0 and 1"):
        point_fit(torch.eye(2), torch.zeros(2), direction=torch.ones(2))
    with pytest.raises(ValueError, match="expected finite"):
        point_fit(torch.tensor([[float("nan")]]), torch.zeros(1))
    with refused("as many values"):
        point_fit(torch.eye(2), torch.zeros(3))
    with pytest.raises(ValueError, match="2 finite numbers, not all 0"):
        point_fit(torch.eye(2), torch.zeros(2), direction=torch.zeros(2))


def test_points_and_values_of_another_shape_are_refused():
    x, y = torch.eye(2), torch.tensor([0.0, 4.0])
    with unchecked_shapes():
        for points, values in ((x, y[:, None]), (x[0], y), (x[None], y), (x, y[0]), (x[:0], y[:0])):
            with refused("[n, d]", "[n]"):
                point_fit(points, values)
        with pytest.raises(ValueError, match=r"expected rows \[n, 2\].*got \[2\]"):
            point_fit(x, y)(x[0])
