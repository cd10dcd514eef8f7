"""Queries on an energy: what is drawn is what was given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import aotlens
from aotlens.denoise import DescentErrors, PlaneDescent, RunMatrices, Spheres, descend_in_plane


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
