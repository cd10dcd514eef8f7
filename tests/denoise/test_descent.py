"""Descent on a context's energy against autograd, the attention layer and loops over points."""

from __future__ import annotations

import math

import pytest
import torch

from aotlens.denoise.bayes import predict
from aotlens.denoise.descent import ENERGIES, descend, energy_on_plane
from aotlens.denoise.one_layer import attend
from aotlens.denoise.tasks import GaussianMixtures, LinearSubspaces, Spheres
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
