"""Energies against autograd and finite differences, and the steps against the attention layers they equal."""

from __future__ import annotations

import pytest
import torch

from aotlens.denoise.energies import (
    asymmetry,
    hopfield_energy,
    hopfield_step,
    layer_jacobian,
    memory_energy,
    memory_step,
    trajectory,
)
from aotlens.denoise.one_layer import attend

N, L = 5, 9


@pytest.fixture
def prompt() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    draw = torch.randn(4, L + 1, N, generator=generator, dtype=torch.float64)
    return draw[:, :-1], draw[:, -1]


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 10.0), (1.607, 0.194), (-0.9, -2.0)])
def test_one_step_of_size_alpha_down_the_memory_energy_is_the_softmax_layer(prompt, alpha, beta) -> None:
    context, query = prompt
    state = query.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(memory_energy(state, context, alpha, beta).sum(), state)
    identity = torch.eye(N, dtype=torch.float64)
    layer = attend(context, query, beta * identity, alpha * identity, "softmax")
    torch.testing.assert_close(query - alpha * gradient, layer, rtol=0, atol=1e-10)
    torch.testing.assert_close(memory_step(query, context, alpha, beta), layer, rtol=0, atol=1e-10)
    for gamma in (0.1, 2.5):
        expected = query - gamma * gradient
        torch.testing.assert_close(memory_step(query, context, alpha, beta, gamma), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("gamma", [1 / 3, 2.0, -0.4])
def test_one_step_of_size_gamma_down_the_hopfield_energy_is_linear_attention(prompt, gamma) -> None:
    context, query = prompt
    state = query.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(hopfield_energy(state, context, gamma).sum(), state)
    identity = torch.eye(N, dtype=torch.float64)
    alpha = 0.7
    layer = attend(context, query, gamma / alpha * identity, alpha * identity, "linear")
    torch.testing.assert_close(query - gamma * gradient, layer, rtol=0, atol=1e-12)
    torch.testing.assert_close(hopfield_step(query, context, gamma), layer, rtol=0, atol=1e-12)
    torch.testing.assert_close(hopfield_step(query, context, gamma, 0.2), query - 0.2 * gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "energy", [lambda s, x: memory_energy(s, x, 0.8, 3.0), lambda s, x: hopfield_energy(s, x, 0.5)]
)
def test_gradients_agree_with_finite_differences(prompt, energy) -> None:
    context, query = prompt
    state = query.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(energy(state, context).sum(), state)
    width = 1e-5
    for axis in range(N):
        shift = width * torch.eye(N, dtype=torch.float64)[axis]
        slope = (energy(query + shift, context) - energy(query - shift, context)) / (2 * width)
        torch.testing.assert_close(gradient[:, axis], slope, rtol=1e-7, atol=1e-8)


def test_a_trajectory_starts_at_the_query_and_linear_attention_repeated_goes_to_zero(prompt) -> None:
    context, query = prompt
    moment = context.mT @ context / L
    gamma = 0.9 / float(torch.linalg.eigvalsh(moment).max())
    states = trajectory(query, lambda s: hopfield_step(s, context, gamma), 400)
    assert states.shape == (401, 4, N)
    assert torch.equal(states[0], query)
    assert float(states[-1].norm()) < 1e-6 * float(query.norm())
    with pytest.raises(ValueError, match="smaller step size"):
        trajectory(query, lambda s: 1e200 * s, 3)


def test_the_jacobian_agrees_with_finite_differences_and_the_corrected_condition_decides_its_symmetry(prompt) -> None:
    context, query = prompt
    generator = torch.Generator().manual_seed(1)
    W_QK, W_OV = torch.randn(2, N, N, generator=generator, dtype=torch.float64)
    jacobian = layer_jacobian(query, context, W_QK, W_OV)
    width = 1e-6
    for axis in range(N):
        shift = width * torch.eye(N, dtype=torch.float64)[axis]
        ends = [attend(context, query + sign * shift, W_QK, W_OV, "softmax") for sign in (1, -1)]
        torch.testing.assert_close(jacobian[:, axis], (ends[0] - ends[1]) / (2 * width), rtol=1e-6, atol=1e-7)
    assert float(asymmetry(jacobian).min()) > 0.1
    # W_PV = W_KQᵀ in the paper's columns is W_OV = W_QKᵀ in our rows: symmetric, and the printed A.19 is not met.
    tied = layer_jacobian(query, context, W_QK, W_QK.T)
    assert float(asymmetry(tied).max()) < 1e-12
    W_KQ, W_PV = W_QK.T, W_QK
    covariance = layer_jacobian(query, context, W_QK, torch.linalg.inv(W_QK))  # similar to Y, and turned back into it:
    covariance = torch.linalg.inv(W_QK) @ covariance @ W_QK
    printed = W_PV @ covariance @ W_KQ.T - W_KQ @ covariance @ W_PV.T
    corrected = W_PV @ covariance @ W_KQ - W_KQ.T @ covariance @ W_PV.T
    assert float(printed.abs().max()) > 0.1
    assert float(corrected.abs().max()) < 1e-9


@pytest.mark.parametrize("scales", [(0.0, 1.0), (1.0, 0.0), (float("nan"), 1.0)])
def test_scales_that_make_no_energy_are_refused(prompt, scales) -> None:
    context, query = prompt
    with pytest.raises(ValueError, match="other than 0"):
        memory_energy(query, context, *scales)
