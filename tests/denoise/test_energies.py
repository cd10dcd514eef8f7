"""Energies against autograd and the attention layers that their steps equal; the asymmetry of heads against
autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from aotlens.denoise import head_asymmetry
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
from aotlens.denoise.subspaces import centred_frame, random_basis
from aotlens.models import AttentionOnlyTransformer, ModelConfig
from tests.small_models import SMALL, maker

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


TOKENS = torch.randint(11, (2, 8), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("changes", [{}, {"attention": "mssa", "bias": True, "positions": "qk"}, {"norm": None}])
def test_it_is_that_of_autograds_jacobian(changes: dict) -> None:
    """∂f/∂s of one head as a function of the centred, normalised query, everything else as the model ran it."""
    model = maker({**SMALL, "n_layers": 2, "d_head": 3})(torch.float64, **changes)
    result = head_asymmetry(model, TOKENS, every=3, n_draws=4)
    assert result.n_queries == 4
    _, cache = model.run_with_cache(TOKENS)
    cfg, centring = model.cfg, torch.eye(12).double() - (1 / 12 if model.cfg.norm else 0)
    expected = np.zeros((2, 3))
    for layer, head in np.ndindex(2, 3):
        attn = model.blocks[layer].attn
        gain = model.blocks[layer].ln1.w.detach() if cfg.norm else torch.ones(12).double()
        for window in range(2):
            for position in (3, 6):
                k = cache[f"blocks.{layer}.attn.hook_k"][window, : position + 1, head]
                v = cache[f"blocks.{layer}.attn.hook_v"][window, : position + 1, head]
                q = cache[f"blocks.{layer}.attn.hook_q"][window, position, head]

                def moved(step, q=q, k=k, v=v, attn=attn, gain=gain, head=head):
                    asked = q + (step @ centring * gain) @ attn.W_Q[head]
                    pattern = (k @ asked * cfg.score_scale).softmax(-1)
                    return pattern @ v @ attn.W_O[head] @ centring

                J = torch.autograd.functional.jacobian(moved, torch.zeros(12).double()).mT
                expected[layer, head] += float((J - J.mT).norm() / (J + J.mT).norm()) / 4
    np.testing.assert_allclose(result.asymmetry.numpy(), expected, rtol=1e-6)


def test_tied_heads_without_positions_are_gradient_flows_and_their_turned_outputs_are_not() -> None:
    cfg = ModelConfig(
        n_layers=2, d_model=40, n_heads=2, d_head=4, n_ctx=8, d_vocab=11, attention="mssa", tied_output=True,
        positions=None, norm=None,
    )  # fmt: skip
    model = AttentionOnlyTransformer(cfg).double().eval()
    result = head_asymmetry(model, TOKENS, every=2, n_draws=9)
    assert float(result.asymmetry.max()) < 1e-6
    assert float(result.null.min()) > 0.5 and 0.85 < float(result.null.mean()) < 1.15
    assert (result.p_below == 0.1).all() and result.headline.endswith("4 of 4 heads below every rotation")
    frame = result.to_frame()
    assert frame.asymmetry.is_monotonic_increasing and len(frame) == 4


def test_unrelated_maps_are_within_their_null() -> None:
    """Heads drawn at random are no more symmetric than with their outputs turned."""
    p_values = []
    for seed in range(8):
        torch.manual_seed(seed)
        cfg = ModelConfig(n_layers=1, d_model=20, n_heads=3, d_head=4, n_ctx=8, d_vocab=11)
        p_values += head_asymmetry(AttentionOnlyTransformer(cfg).eval(), TOKENS, every=2, n_draws=19).p_below.flatten()
    assert abs(np.mean(p_values) - 0.525) < 4 * 0.289 / 24**0.5


def test_a_head_whose_pattern_rests_on_one_key_has_no_asymmetry() -> None:
    """Its Jacobian is zero: NaN, as `energies.asymmetry` has it, and no head that is nearest to a gradient flow."""
    model = maker({**SMALL, "n_layers": 2, "d_head": 3})(torch.float64)
    with torch.no_grad():
        for attn, saturated in ((model.blocks[0].attn, [0]), (model.blocks[1].attn, [0, 1, 2])):
            attn.W_Q[saturated] *= 1e9
    result = head_asymmetry(model, TOKENS, every=3, n_draws=4)
    known = torch.tensor([[False, True, True], [False, False, False]])
    assert torch.equal(~result.asymmetry.isnan(), known) and torch.equal(~result.p_below.isnan(), known)
    assert result.n_queries == 4
    assert result.headline.startswith("least in head 0.") and " of 2 heads below" in result.headline
    assert result.to_frame().asymmetry.isna().tolist() == [False] * 2 + [True] * 4
    with torch.no_grad():
        model.blocks[0].attn.W_Q *= 1e9
    assert head_asymmetry(model, TOKENS, every=3, n_draws=1).headline == "the Jacobians of all heads are zero"


def test_the_null_turns_the_dimensions_behind_the_norm_alone() -> None:
    """J R, the rotation of the centred dimensions only: loops over the same rotations, and ‖J‖ is kept."""
    model = maker({**SMALL, "n_layers": 1, "n_heads": 1, "d_head": 3})(torch.float64)
    result = head_asymmetry(model, TOKENS[:1], every=7, n_draws=3, seed=2)
    _, cache = model.run_with_cache(TOKENS[:1])
    k, v = (cache[f"blocks.0.attn.hook_{name}"][0, :, 0] for name in "kv")
    pattern = cache["blocks.0.attn.hook_pattern"][0, 0, 7]
    C = (k.mT * pattern) @ v - torch.outer(pattern @ k, pattern @ v)
    centring = torch.eye(12).double() - 1 / 12
    J = centring @ (model.blocks[0].ln1.w[:, None] * model.W_Q[0, 0]) @ C @ model.W_O[0, 0] @ centring
    generator, frame = torch.Generator().manual_seed(2), centred_frame(12, 11)
    for draw in range(3):
        turned = J.detach() @ frame @ random_basis(11, 11, generator) @ frame.mT
        torch.testing.assert_close(turned.norm(), J.norm().detach())
        expected = (turned - turned.mT).norm() / (turned + turned.mT).norm()
        torch.testing.assert_close(result.null[draw, 0, 0], expected, rtol=1e-9, atol=0)


def test_what_has_no_such_jacobian_is_refused() -> None:
    with pytest.raises(ValueError, match="softmax attention's"):
        head_asymmetry(maker()(phi="linear"), TOKENS)
    with pytest.raises(ValueError, match="longer than every=16"):
        head_asymmetry(maker()(), TOKENS)
