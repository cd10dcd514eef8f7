"""A prompt in the plane: its query's way, its energy, and the errors of many prompts beside it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.denoise import (
    DescentErrors,
    GaussianMixtures,
    LinearSubspaces,
    Spheres,
    attend,
    best_scale,
    descend_by_share,
    descend_in_plane,
    optimal_linear_scale,
)
from tests.messages import refused

CIRCLE = Spheres(n=2, d=1, radius=1.0, noise_variance=0.1)
SCALES = {"alpha": 0.8, "beta": 3.0}


@pytest.mark.parametrize("energy", ["memory", "hopfield"])
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_a_step_is_a_share_of_the_layers(energy, share):
    prompts = CIRCLE.sample(9, 12, 4)
    descent = descend_by_share(CIRCLE, prompts, share, energy=energy, **SCALES, n_steps=1)
    eye = torch.eye(2, dtype=torch.float64)
    kind = {"memory": "softmax", "hopfield": "linear"}[energy]
    layer = attend(prompts.context, prompts.query, 3.0 * eye, 0.8 * eye, kind)
    torch.testing.assert_close(descent.attention, layer)
    torch.testing.assert_close(descent.states[1], prompts.query + share * (layer - prompts.query))


def test_the_plane_holds_all_that_is_drawn_and_a_query_stays_in_it():
    for task in (CIRCLE, LinearSubspaces(n=2, d=1, noise_variance=1.5), GaussianMixtures(n=2, n_components=3)):
        found = descend_in_plane(task, 15, 2, **SCALES, n_steps=3, n_points=9)
        prompts = task.sample(1, 15, 2)
        drawn = torch.cat([prompts.context[0], prompts.query, prompts.target]).abs().max()
        assert found.reach == pytest.approx(max(1.2 * float(drawn), 1.5))
        assert found.plane.energy.shape == (9, 9) and len(found.descent.states) == 4
    put = descend_in_plane(CIRCLE, 15, 2, **SCALES, n_steps=3, query=(-99.0, 0.25))
    assert put.prompts.query.tolist() == [[-put.reach, 0.25]] == put.descent.states[0].tolist()


def test_tables_hold_the_points_and_the_curves():
    found = descend_in_plane(CIRCLE, 6, 1, **SCALES, n_steps=2)
    frame = found.to_frame()
    assert frame.kind.tolist() == ["context"] * 6 + ["path"] * 3 + ["attention", "Bayes", "clean"]
    np.testing.assert_array_equal(frame[frame.kind == "path"][["x", "y"]], found.descent.states[:, 0])
    np.testing.assert_array_equal(frame[frame.kind == "clean"][["x", "y"]], found.prompts.target)
    many = descend_by_share(CIRCLE, CIRCLE.sample(30, 6, 7), 1.0, energy="memory", **SCALES, n_steps=2)
    errors = DescentErrors(many, found.descent).to_frame()
    np.testing.assert_allclose(errors.squared_error, many.errors.mean(1))
    np.testing.assert_array_equal(errors.this_query, found.descent.errors[:, 0])


def test_what_cannot_be_drawn_is_refused():
    with refused("2 dimensions", "n=16"):
        descend_in_plane(Spheres(), 5, **SCALES)
    with refused("energy='x'", "'memory'"):
        descend_in_plane(CIRCLE, 5, energy="x", **SCALES)
    with refused("n_points"):
        descend_in_plane(CIRCLE, 5, **SCALES, n_points=1)


def test_the_best_scales_lose_no_more_than_others():
    prompts = CIRCLE.sample(400, 30, 1000)
    best = best_scale(CIRCLE, prompts)

    def lost(alpha: float, beta: float) -> float:
        scales = {"alpha": alpha, "beta": beta}
        descent = descend_by_share(CIRCLE, prompts, 1.0, energy="memory", **scales, n_steps=1)
        return float(descent.attention_errors.mean())

    assert lost(best.alpha, best.beta) == pytest.approx(best.loss)
    for alpha, beta in ((1, 1.3), (1, 1 / 1.3), (1.2, 1), (1 / 1.2, 1)):
        assert best.loss <= lost(alpha * best.alpha, beta * best.beta) + 1e-4
    assert best_scale(CIRCLE, prompts, "hopfield").beta == optimal_linear_scale(CIRCLE, 30).beta
    with refused("energy='x'", "'memory'"):
        best_scale(CIRCLE, prompts, "x")
