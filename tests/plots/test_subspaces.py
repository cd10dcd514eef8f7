"""Figures of tokens layer by layer, whose frames are layers, and of queries on an energy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import aotlens
from aotlens.denoise import (
    DescentErrors,
    Memberships,
    PlaneDescent,
    RunMatrices,
    Spheres,
    TokenPoints,
    Unrolling,
    descend_in_plane,
    sample_mixture,
    unroll_mixture,
)
from aotlens.plots.colours import LINES
from tests.messages import refused

LABELS = np.array([0, 0, 1, 1, 1, 2])


@pytest.fixture(scope="module")
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def unrolled(snr: np.ndarray, threshold: float | None) -> Unrolling:
    """With this SNR, of step size 0.5; a threshold of 0.6 makes the rate 1.3."""
    whole = unroll_mixture(sample_mixture(2, 2, 3, 8, 0.1), 0.5, "softmax", None, 2)
    return replace(whole, threshold=threshold, snr=torch.from_numpy(snr))


@pytest.mark.parametrize("n_axes", [2, 3])
def test_a_cloud_has_a_frame_for_each_layer_and_stands_at_the_chosen_one(rng, n_axes: int):
    points = rng.normal(size=(4, 6, n_axes))
    ends = ((-9.0, 9.0), (-8.0, 8.0), (-7.0, 7.0))[:n_axes]
    names = ("own", "other", "third")[:n_axes]
    result = TokenPoints(kind="lengths", coordinates=points, axes=names, ranges=ends, labels=LABELS)
    figure = aotlens.plot(result, layer=2)
    assert [frame.name for frame in figure.frames] == ["0", "1", "2", "3"]
    for layer, frame in enumerate(figure.frames):
        assert frame.traces == (0,)
        for axis in range(n_axes):
            np.testing.assert_allclose(frame.data[0]["xyz"[axis]], points[layer, :, axis], rtol=1e-6)
    cloud = figure.data[0]
    np.testing.assert_allclose(cloud.y, points[2, :, 1], rtol=1e-6)
    assert list(cloud.marker.color) == [LINES["light"][label] for label in LABELS]
    assert [trace.name for trace in figure.data[1:]] == ["1", "2", "3"]
    assert (figure.layout.scene.xaxis if n_axes == 3 else figure.layout.xaxis).range == ends[0]
    with refused("layer=4", "0 to 3"):
        aotlens.plot(result, layer=4)


def test_the_snr_has_its_theory_the_exact_layers_and_a_line_at_the_layer():
    snr = np.array([[2.0, 4.0], [2.6, 5.2], [1.0, np.inf]])
    figure = aotlens.plot(unrolled(snr, 0.6), layer=1)
    clusters, theory, mark = figure.data[:2], figure.data[2], figure.data[3]
    np.testing.assert_allclose(clusters[0].y, snr[:, 0])
    np.testing.assert_array_equal(np.isnan(clusters[1].y), [False, False, True])  # a logarithm does not have it
    np.testing.assert_allclose(theory.y, 3.0 * 1.3 ** np.arange(3))
    assert (figure.layout.shapes[0].x0, figure.layout.shapes[0].x1) == (0, 1)
    assert list(mark.x) == [1, 1]
    assert [list(frame.data[0].x) for frame in figure.frames] == [[0, 0], [1, 1], [2, 2]]
    assert all(frame.traces == (3,) for frame in figure.frames)
    assert list(figure.layout.yaxis.ticktext) == ["1", "2", "5"]
    without = aotlens.plot(unrolled(snr, None))
    assert len(without.data) == 3 and not without.layout.shapes


def test_memberships_are_parted_at_the_clusters(rng):
    patterns = rng.uniform(size=(3, 6, 6))
    figure = aotlens.plot(Memberships(subspace=1, layer=1, patterns=patterns, labels=LABELS))
    np.testing.assert_allclose(figure.data[0].z, patterns[1], rtol=1e-6)
    for layer, frame in enumerate(figure.frames):
        np.testing.assert_allclose(frame.data[0].z, patterns[layer], rtol=1e-6)
    assert figure.data[0].zmin == 0 and figure.data[0].zmax == pytest.approx(patterns.max())
    assert {shape.x0 for shape in figure.layout.shapes if shape.x0 == shape.x1} == {1.5, 4.5}
    assert list(figure.layout.xaxis.tickvals) == [0.5, 3, 5]


@pytest.fixture(scope="module")
def placed() -> PlaneDescent:
    return descend_in_plane(Spheres(n=2, d=1), 6, seed=1, alpha=1.0, beta=3.0, n_steps=2)


def test_the_landscape_has_the_energy_the_tokens_and_the_query_on_its_way(placed: PlaneDescent) -> None:
    figure = aotlens.plot(placed)
    traces = {trace.name: trace for trace in figure.data}
    np.testing.assert_allclose(traces["energy"].z, placed.plane.energy, rtol=1e-6)
    for name, points in (
        ("context", placed.prompts.context[0]), ("2 steps", placed.descent.states[:, 0]),
        ("attention, one step", torch.stack([placed.prompts.query[0], placed.descent.attention[0]])),
        ("Bayes", placed.descent.bayes), ("clean", placed.prompts.target), ("query", placed.prompts.query),
    ):  # fmt: skip
        np.testing.assert_allclose(np.stack([traces[name].x, traces[name].y], 1), points, rtol=1e-6, err_msg=name)
    assert figure.data[-1].name == "query", "it lies on top, where a pointer finds it"
    assert figure.layout.yaxis.scaleanchor == "x" and figure.layout.dragmode is False
    still = aotlens.plot(descend_in_plane(Spheres(n=2, d=1), 6, seed=1, alpha=1.0, beta=3.0, n_steps=0))
    assert "steps" not in " ".join(trace.name for trace in still.data)


def test_errors_stand_beside_their_levels(placed: PlaneDescent) -> None:
    errors = DescentErrors(placed.descent, placed.descent)
    figure, found = aotlens.plot(errors), placed.descent
    np.testing.assert_allclose([trace.y for trace in figure.data], 2 * [found.errors[:, 0].tolist()], rtol=1e-6)
    levels = [float(found.attention_errors), float(found.bayes_errors)]
    assert [shape.y0 for shape in figure.layout.shapes] == pytest.approx(levels)
    assert [note.text for note in figure.layout.annotations] == [
        f"attention {levels[0]:.3g}", f"Bayes {levels[1]:.3g}"
    ]  # fmt: skip
    assert figure.layout.yaxis.type is None
    away = replace(found, errors=found.errors * torch.tensor([1.0, 10.0, 1000.0])[:, None])
    growing = aotlens.plot(DescentErrors(away, away)).layout
    assert growing.yaxis.type == "log" and growing.shapes[0].y0 == pytest.approx(levels[0])
    assert growing.annotations[0].y == pytest.approx(np.log10(levels[0])), "placed by its logarithm"


def test_matrices_stand_beside_their_scaled_identities():
    first, second = np.array([[2.0, 0.5], [0.0, 4.0]]), np.array([[-1.0, 0.0], [3.0, -1.0]])
    figure = aotlens.plot(RunMatrices(seed=0, W_QK=torch.from_numpy(first), W_OV=torch.from_numpy(second)))
    for trace, values in zip(figure.data, (first, 3 * np.eye(2), second, -np.eye(2)), strict=True):
        np.testing.assert_allclose(trace.z, values)
    assert [(trace.zmin, trace.zmax) for trace in figure.data] == [(-4, 4), (-4, 4), (-3, 3), (-3, 3)]
    titles = [note.text for note in figure.layout.annotations]
    assert titles == ["<b>W_QK</b>", "<b>β I, β = 3</b>", "<b>W_OV</b>", "<b>α I, α = -1</b>"]
    assert figure.layout.yaxis.domain[0] > figure.layout.yaxis3.domain[1], "the first matrix stands on top"
