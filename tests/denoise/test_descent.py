"""Descent on a context's energy, in the plane too, against autograd, the attention layer and loops over points."""

from __future__ import annotations

import math

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
from aotlens.denoise.bayes import predict
from aotlens.denoise.descent import ENERGIES, descend, energy_on_plane
from tests.messages import refused

CIRCLE = Spheres(n=2, d=1, radius=1.0, noise_variance=0.2)


@pytest.mark.parametrize("energy", ENERGIES)
def test_a_step_is_the_gradient_and_the_first_of_the_right_size_is_attention(energy) -> None:
    prompts = CIRCLE.sample(5, 12, seed=3)
    alpha, beta, gamma = 0.9, 3.0, 0.4
    result = descend(CIRCLE, prompts, energy=energy, alpha=alpha, beta=beta, step_size=gamma, n_steps=3)
    state = prompts.query
    for time in range(3):
        state = state.clone().requires_grad_()
        values = [ENERGIES[energy].energy(s, x, alpha, beta) for s, x in zip(state, prompts.context, strict=True)]
        (gradient,) = torch.autograd.grad(torch.stack(values).sum(), state)
        state = (state - gamma * gradient).detach()
        torch.testing.assert_close(result.states[time + 1], state, rtol=0, atol=1e-10)
    identity = torch.eye(2, dtype=torch.float64)
    layer = attend(prompts.context, prompts.query, beta * identity, alpha * identity, ENERGIES[energy].attention)
    torch.testing.assert_close(result.attention, layer, rtol=0, atol=1e-10)
    once = descend(CIRCLE, prompts, energy=energy, alpha=alpha, beta=beta)
    torch.testing.assert_close(once.states[1], layer, rtol=0, atol=1e-10)


def test_errors_are_distances_to_the_clean_token() -> None:
    task = GaussianMixtures(n=2, n_components=3)
    prompts = task.sample(4, 20, seed=1)
    result = descend(task, prompts, alpha=1.0, beta=10.0, n_steps=2)
    for time in range(3):
        for prompt in range(4):
            gap = result.states[time, prompt] - prompts.target[prompt]
            assert float(result.errors[time, prompt]) == pytest.approx(float(gap @ gap))
    torch.testing.assert_close(result.bayes, predict(task, prompts))
    assert float(result.bayes_errors[0]) == pytest.approx(math.dist(result.bayes[0], prompts.target[0]) ** 2)
    frame = result.to_frame()
    assert frame.step.tolist() == [0, 1, 2]
    assert frame.squared_error[1] == pytest.approx(float(result.attention_errors.mean()))


def test_iterating_degrades_the_estimate_of_a_circle() -> None:
    """Figure 5: on average one step is better than the query, and many steps are worse than one."""
    prompts = CIRCLE.sample(400, 60, seed=0)
    errors = descend(CIRCLE, prompts, alpha=1.0, beta=5.0, n_steps=60).errors.mean(1)
    assert float(errors[1]) < 0.7 * float(errors[0])
    assert float(errors[60]) > 1.2 * float(errors[1])


@pytest.mark.parametrize("energy", ENERGIES)
def test_the_plane_is_the_energy_at_each_of_its_points(energy) -> None:
    prompts = LinearSubspaces(n=2, d=1).sample(1, 7, seed=5)
    x, y = torch.linspace(-2, 2, 5).double(), torch.linspace(-1, 1, 4).double()
    plane = energy_on_plane(prompts.context[0], x, y, energy=energy, alpha=0.8, beta=1.5)
    assert plane.energy.shape == (4, 5)
    for row in range(4):
        for column in range(5):
            point = torch.stack([x[column], y[row]])
            expected = ENERGIES[energy].energy(point, prompts.context[0], 0.8, 1.5)
            torch.testing.assert_close(plane.energy[row, column], expected)


def test_an_unknown_energy_is_refused() -> None:
    prompts = CIRCLE.sample(1, 3)
    with refused("energy='ising'", "'memory', 'hopfield'"):
        descend(CIRCLE, prompts, energy="ising", alpha=1.0, beta=1.0)
    with pytest.raises(ValueError, match="energy='ising'"):
        energy_on_plane(prompts.context[0], torch.zeros(1), torch.zeros(1), energy="ising", alpha=1.0, beta=1.0)
    with pytest.raises(ValueError, match="take a smaller step size"):
        descend(CIRCLE, prompts, energy="hopfield", alpha=1.0, beta=1e200, n_steps=9)


CLEANER_CIRCLE = Spheres(n=2, d=1, radius=1.0, noise_variance=0.1)
SCALES = {"alpha": 0.8, "beta": 3.0}


@pytest.mark.parametrize("energy", ["memory", "hopfield"])
@pytest.mark.parametrize("share", [1.0, 0.25])
def test_a_step_is_a_share_of_the_layers(energy, share):
    prompts = CLEANER_CIRCLE.sample(9, 12, 4)
    descent = descend_by_share(CLEANER_CIRCLE, prompts, share, energy=energy, **SCALES, n_steps=1)
    eye = torch.eye(2, dtype=torch.float64)
    kind = {"memory": "softmax", "hopfield": "linear"}[energy]
    layer = attend(prompts.context, prompts.query, 3.0 * eye, 0.8 * eye, kind)
    torch.testing.assert_close(descent.attention, layer)
    torch.testing.assert_close(descent.states[1], prompts.query + share * (layer - prompts.query))


def test_the_plane_holds_all_that_is_drawn_and_a_query_stays_in_it():
    for task in (CLEANER_CIRCLE, LinearSubspaces(n=2, d=1, noise_variance=1.5), GaussianMixtures(n=2, n_components=3)):
        found = descend_in_plane(task, 15, 2, **SCALES, n_steps=3, n_points=9)
        prompts = task.sample(1, 15, 2)
        drawn = torch.cat([prompts.context[0], prompts.query, prompts.target]).abs().max()
        assert found.reach == pytest.approx(max(1.2 * float(drawn), 1.5))
        assert found.plane.energy.shape == (9, 9) and len(found.descent.states) == 4
    put = descend_in_plane(CLEANER_CIRCLE, 15, 2, **SCALES, n_steps=3, query=(-99.0, 0.25))
    assert put.prompts.query.tolist() == [[-put.reach, 0.25]] == put.descent.states[0].tolist()


def test_tables_hold_the_points_and_the_curves():
    found = descend_in_plane(CLEANER_CIRCLE, 6, 1, **SCALES, n_steps=2)
    frame = found.to_frame()
    assert frame.kind.tolist() == ["context"] * 6 + ["path"] * 3 + ["attention", "Bayes", "clean"]
    np.testing.assert_array_equal(frame[frame.kind == "path"][["x", "y"]], found.descent.states[:, 0])
    np.testing.assert_array_equal(frame[frame.kind == "clean"][["x", "y"]], found.prompts.target)
    many = descend_by_share(CLEANER_CIRCLE, CLEANER_CIRCLE.sample(30, 6, 7), 1.0, energy="memory", **SCALES, n_steps=2)
    errors = DescentErrors(many, found.descent).to_frame()
    np.testing.assert_allclose(errors.squared_error, many.errors.mean(1))
    np.testing.assert_array_equal(errors.this_query, found.descent.errors[:, 0])


def test_what_cannot_be_drawn_is_refused():
    with refused("2 dimensions", "n=16"):
        descend_in_plane(Spheres(), 5, **SCALES)
    with refused("energy='x'", "'memory'"):
        descend_in_plane(CLEANER_CIRCLE, 5, energy="x", **SCALES)
    with refused("n_points"):
        descend_in_plane(CLEANER_CIRCLE, 5, **SCALES, n_points=1)


def test_the_best_scales_lose_no_more_than_others():
    prompts = CLEANER_CIRCLE.sample(400, 30, 1000)
    best = best_scale(CLEANER_CIRCLE, prompts)

    def lost(alpha: float, beta: float) -> float:
        scales = {"alpha": alpha, "beta": beta}
        descent = descend_by_share(CLEANER_CIRCLE, prompts, 1.0, energy="memory", **scales, n_steps=1)
        return float(descent.attention_errors.mean())

    assert lost(best.alpha, best.beta) == pytest.approx(best.loss)
    for alpha, beta in ((1, 1.3), (1, 1 / 1.3), (1.2, 1), (1 / 1.2, 1)):
        assert best.loss <= lost(alpha * best.alpha, beta * best.beta) + 1e-4
    assert best_scale(CLEANER_CIRCLE, prompts, "hopfield").beta == optimal_linear_scale(CLEANER_CIRCLE, 30).beta
    with refused("energy='x'", "'memory'"):
        best_scale(CLEANER_CIRCLE, prompts, "x")
