"""Attention as one step of gradient descent on an energy of the context (*in-context-denoising* §4 and I).

With the context X `[L, n]` as rows and a state s `[n]`, for scaled identities W_OV = α I, W_QK = β I:

    E(s) = ‖s‖²/(2α) − (1/β) log Σ_t exp(β x_t·s)          dense associative memory (Eq. 16)
    E(s) = ‖s‖²/(2γ) − sᵀ S s / 2,  S = XᵀX / L             naive spherical Hopfield (Eq. A.15)

Gradient descent s ← s − γ ∇E(s) from the query is the attention layer after one step of size γ = α (Eq. 16), or γ =
αβ (A.15, where the γ of the energy is that of the step). Further steps are another algorithm: the state moves on to a
minimum of the energy, a memory or a mean of several, and the estimate gets worse (Figure 5).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_whole
from aotlens.denoise.one_layer import second_moment

Energy = Callable[[Tensor], Tensor]


def memory_energy(
    state: Float[Tensor, "*batch n"],
    context: Float[Tensor, "*contexts context n"],
    alpha: float | int,
    beta: float | int,
) -> Float[Tensor, "*batch"]:
    """Return ‖s‖²/(2α) − (1/β) log Σ_t exp(β x_t·s), the dense associative memory of the context (Eq. 16).

    `context` is one for all states, or one for each. Both scales may be negative (the sign flip that training may
    find). Raises `ValueError` for α or β of 0 or not finite.
    """
    _need_scales(alpha=alpha, beta=beta)
    scores = beta * torch.einsum("...cn,...n->...c", context, state)
    return state.pow(2).sum(-1) / (2 * alpha) - scores.logsumexp(-1) / beta


def memory_step(
    state: Float[Tensor, "*batch n"],
    context: Float[Tensor, "*batch context n"],
    alpha: float | int,
    beta: float | int,
    step_size: float | int | None = None,
) -> Float[Tensor, "*batch n"]:
    """Return one step of gradient descent on `memory_energy`: (1 − γ/α) s + γ Xᵀ softmax(β X s) (Eq. 17).

    `step_size` is γ; None is α, at which the step is the softmax attention layer itself.
    """
    _need_scales(alpha=alpha, beta=beta)
    gamma = alpha if step_size is None else step_size
    pattern = (beta * (context @ state[..., None])[..., 0]).softmax(-1)
    return (1 - gamma / alpha) * state + gamma * (pattern[..., None, :] @ context)[..., 0, :]


def hopfield_energy(
    state: Float[Tensor, "*batch n"], context: Float[Tensor, "*contexts context n"], gamma: float | int
) -> Float[Tensor, "*batch"]:
    """Return ‖s‖²/(2γ) − sᵀ S s / 2 with S = XᵀX / L: the naive spherical Hopfield energy (Eq. A.15).

    `context` is one for all states, or one for each. Raises `ValueError` for γ of 0 or not finite.
    """
    _need_scales(gamma=gamma)
    recalled = (state[..., None, :] @ second_moment(context))[..., 0, :]
    return state.pow(2).sum(-1) / (2 * gamma) - (recalled * state).sum(-1) / 2


def hopfield_step(
    state: Float[Tensor, "*batch n"],
    context: Float[Tensor, "*batch context n"],
    gamma: float | int,
    step_size: float | int | None = None,
) -> Float[Tensor, "*batch n"]:
    """Return one step of gradient descent on `hopfield_energy`; `step_size` None is γ, at which it is linear attention.

    There γ = αβ. Repeated, it takes the state to 0 where γ times the largest eigenvalue of S is below 1, and to
    infinity where it is above (I.1).
    """
    _need_scales(gamma=gamma)
    step = gamma if step_size is None else step_size
    return (1 - step / gamma) * state + step * (state[..., None, :] @ second_moment(context))[..., 0, :]


def trajectory(
    start: Float[Tensor, "*batch n"], step: Callable[[Tensor], Tensor], n_steps: int
) -> Float[Tensor, "time *batch n"]:
    """Return the state after 0, 1, …, `n_steps` applications of `step`: `[n_steps + 1, …, n]`.

    `step` is, say, `lambda s: memory_step(s, context, alpha, beta)`. Raises `ValueError` for a negative number of
    steps and where the state ceases to be finite (a step too large).
    """
    require_whole("n_steps", n_steps, 0)
    if n_steps < 0:
        raise ValueError(f"n_steps={n_steps}: expected at least 0.")
    states = [start]
    for number in range(1, n_steps + 1):
        states.append(step(states[-1]))
        if not states[-1].isfinite().all():
            raise ValueError(f"step {number} leaves the range of numbers; take a smaller step size.")
    return torch.stack(states)


def layer_jacobian(
    state: Float[Tensor, "*batch n"],
    context: Float[Tensor, "*batch context n"],
    W_QK: Float[Tensor, "*weights n n"],
    W_OV: Float[Tensor, "*weights n n"],
) -> Float[Tensor, "*batch n n"]:
    """Return ∂x̂_j/∂s_i of softmax attention, `[…, i, j]`: W_QK Y W_OV, Y = Xᵀ (diag(g) − g gᵀ) X, g the pattern (Eq.
    A.18).

    Y is the covariance of the context under the pattern. The paper, in columns, has W_PV Y W_KQ, the transpose of this.
    """
    pattern = (context @ (state[..., None, :] @ W_QK).mT)[..., 0].softmax(-1)
    centred = context - pattern[..., None, :] @ context  # the difference of two moments would cancel on a sharp pattern
    covariance = (centred * pattern[..., None]).mT @ centred
    return W_QK @ covariance @ W_OV


def asymmetry(jacobian: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch"]:
    """Return ‖J − Jᵀ‖_F ÷ ‖J + Jᵀ‖_F: 0 where the layer is a gradient flow of some energy at this state; 1 on average
    without relation.

    A flow is a gradient where its Jacobian is symmetric. Condition A.19 as printed transposes wrongly: the right one is
    W_PV Y W_KQ = W_KQᵀ Y W_PVᵀ, which W_PV = W_KQᵀ meets and the printed form does not. NaN where J is zero.
    """
    difference, total = jacobian - jacobian.mT, jacobian + jacobian.mT
    return difference.flatten(-2).norm(dim=-1) / total.flatten(-2).norm(dim=-1)


def _need_scales(**scales: float | int) -> None:
    for name, value in scales.items():
        if not math.isfinite(value) or value == 0:
            raise ValueError(f"{name}={value}: expected a finite number other than 0.")
