"""Attention as one step of gradient descent on an energy of the context (*in-context-denoising* §4 and I).

With the context X `[L, n]` as rows and a state s `[n]`, for scaled identities W_OV = α I, W_QK = β I:

    E(s) = ‖s‖²/(2α) − (1/β) log Σ_t exp(β x_t·s)          dense associative memory (Eq. 16)
    E(s) = ‖s‖²/(2γ) − sᵀ S s / 2,  S = XᵀX / L             naive spherical Hopfield (Eq. A.15)

Gradient descent s ← s − γ ∇E(s) from the query is the attention layer after one step of size γ = α (Eq. 16), or γ =
αβ (A.15, where the γ of the energy is that of the step). Further steps are another algorithm: the state moves on to a
minimum of the energy, a memory or a mean of several, and the estimate gets worse (Figure 5).

**Trained heads.** `head_asymmetry` measures which heads are nearly gradient flows of an energy, by the symmetry of
their Jacobians over real contexts. A head moves a query with (normalised) state s by f(s) = Σ_t g_t(s) v_t W_O, g the
softmax of its scores. With the context fixed, f is a gradient flow where its Jacobian is symmetric
(*in-context-denoising* I.2). In rows,

    J = F_Q C W_O,    C = scale · Σ_t g_t (k_t − k̄)(v_t − v̄)ᵀ    [d_head, d_head],    J [d_model, d_model],

F_Q the folded query map, k_t and v_t the head's keys and values (positions and biases in them), k̄ and v̄ their means
under the pattern g of the query, W_O centred as the next norm centres it. **Asymmetry** is ‖J − Jᵀ‖ ÷ ‖J + Jᵀ‖: 0 for a
gradient flow, 1 on average where J and Jᵀ know nothing of each other, above 1 where J is nearly antisymmetric. The null
turns W_OV by a random rotation R of the stream's D dimensions, J R, which keeps all singular values of J.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_seed, require_whole
from aotlens.denoise.one_layer import second_moment
from aotlens.denoise.subspaces import centred_frame, random_basis
from aotlens.heads.reader import TokenSequences
from aotlens.models import AttentionOnlyTransformer, folded_norm, hook_names, require_ours
from aotlens.models.phi import PHIS
from aotlens.models.weights import double
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd


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


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadAsymmetry(Result):
    """‖J − Jᵀ‖ ÷ ‖J + Jᵀ‖ of every head, the mean over queries; NaN for a head whose J is zero at all of them."""

    asymmetry: Float[Tensor, "layer head"]
    null: Float[Tensor, "draw layer head"]
    """‖J − Jᵀ‖ ÷ ‖J + Jᵀ‖ with W_OV rotated, a rotation a draw; all heads share the rotations."""
    n_queries: int
    """Queries that were read; a head's mean leaves out those at which its J is zero (its pattern rests on one key)."""

    @property
    def p_below(self) -> Float[Tensor, "layer head"]:
        """(1 + rotations at or below the head's) ÷ (1 + rotations): small where the head is nearer to a gradient flow
        than with its output rotated; NaN where its J is zero."""
        p_values = (1 + (self.null <= self.asymmetry).sum(0)).double() / (1 + len(self.null))
        return p_values.where(~self.asymmetry.isnan(), math.nan)

    @property
    def headline(self) -> str:
        known = ~self.asymmetry.isnan()
        if not known.any():
            return "the Jacobians of all heads are zero"
        least = self.asymmetry.where(known, math.inf)
        layer, head = divmod(int(least.argmin()), least.shape[1])
        below = int((self.asymmetry < self.null.amin(0)).sum())
        return (
            f"least in head {layer}.{head} ({float(least.min()):.2f}); {below} of {int(known.sum())} heads below every "
            "rotation"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row per head, the most symmetric first, with its rotations; p is over rotations on these
        contexts."""
        n_layers, n_heads = self.asymmetry.shape
        frame = data_frame(
            {
                "layer": [layer for layer in range(n_layers) for _ in range(n_heads)],
                "head": list(range(n_heads)) * n_layers,
                "asymmetry": self.asymmetry.flatten().tolist(),
                "null": self.null.mean(0).flatten().tolist(),
                "null_least": self.null.amin(0).flatten().tolist(),
                "null_largest": self.null.amax(0).flatten().tolist(),
                "p_below": self.p_below.flatten().tolist(),
            }
        )
        return frame.sort_values("asymmetry", kind="stable", ignore_index=True)


@torch.no_grad()
def head_asymmetry(
    model: AttentionOnlyTransformer,
    tokens: TokenSequences,
    *,
    every: int = 16,
    n_draws: int = 20,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> HeadAsymmetry:
    """Measure the asymmetry of every head's Jacobian at every `every`-th query of `tokens`, from query `every` on.

    `tokens` are windows of text `[window, pos]`, one sequence, a text, or texts of equally many tokens.
    Only d_head × d_head products are formed: ‖J ∓ Jᵀ‖² = 2‖J‖² ∓ 2 tr J². `progress(done, total)` counts windows.
    Time: a pass over the text, and O(heads · queries · (pos · d_head² + draws · d_head³)).

    Raises `ValueError` for a φ other than softmax, whose Jacobian this is, windows too short for a query, and no draws.
    """
    require_whole("n_draws", n_draws, 1)
    require_ours(model, "head_asymmetry", without=("norm_after", "norm_output", "qk_norm", "score_cap", "clip_qkv"))
    cfg = model.cfg
    if not PHIS[cfg.phi].sdpa:
        raise ValueError(f"phi={cfg.phi!r}: the Jacobian here is softmax attention's.")
    if cfg.position_kind.rotates:
        raise ValueError(
            f"head_asymmetry: this model {cfg.position_kind.meaning}; its Jacobian has another W_QK for each key, and "
            "the formula here has one."
        )
    windows = model.to_rows(tokens, "tokens")
    if windows.ndim != 2 or windows.shape[1] <= every or every < 1:
        raise ValueError(
            f"expected windows [window, pos] longer than every={every}, at least 1, got tokens {list(windows.shape)}."
        )
    folded = [folded_norm(model, layer) for layer in range(cfg.n_layers)]
    F_Q = torch.stack([norm.into(double(W)) for norm, W in zip(folded, model.W_Q, strict=True)])
    W_O = folded_norm(model, None).centre(double(model.W_O))
    turned = _turned_products(W_O, F_Q, model, n_draws, seed)  # [draw + 1, layer, head, d_head, d_head]
    grams = F_Q.mT @ F_Q, W_O @ W_O.mT
    sums, counts = torch.zeros(2, n_draws + 1, cfg.n_layers, cfg.n_heads, dtype=torch.float64)
    wanted = (hook_names.K, hook_names.V, hook_names.PATTERN)
    for number, window in enumerate(windows, 1):
        _, cache = model.run_with_cache(
            window[None], names_filter=lambda name: name.endswith(wanted), return_cache_object=False
        )
        for layer in range(cfg.n_layers):
            k, v, pattern = (double(cache[hook_names.attn(layer, name)][0]) for name in wanted)
            C = cfg.score_scale * _covariance(pattern[:, every::every], k.transpose(0, 1), v.transpose(0, 1))
            asymmetry = _asymmetry(C, grams[0][layer], grams[1][layer], turned[:, layer])
            sums[:, layer] += asymmetry.nansum(-1)
            counts[:, layer] += (~asymmetry.isnan()).sum(-1)
        if progress is not None:
            progress(number, len(windows))
    means = sums / counts  # 0 ÷ 0 where J is zero at every query
    n_queries = len(windows) * len(range(every, windows.shape[1], every))
    return HeadAsymmetry(asymmetry=means[0], null=means[1:], n_queries=n_queries)


def _turned_products(W_O: Tensor, F_Q: Tensor, model: AttentionOnlyTransformer, n_draws: int, seed: int) -> Tensor:
    """W_O R F_Q for R = 1 and every rotation of the dimensions in which W_O and F_Q lie."""
    d_model = model.cfg.d_model
    width = d_model - 1 if model.cfg.centres else d_model
    frame = centred_frame(d_model, width)
    generator = torch.Generator().manual_seed(require_seed(seed))
    writes, reads = W_O @ frame, frame.T @ F_Q
    turned = [writes @ random_basis(width, width, generator) @ reads for _ in range(n_draws)]
    return torch.stack([W_O @ F_Q, *turned])


def _covariance(pattern: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "head query d_head d_head"]:
    """Σ_t g_t (k_t − k̄)(v_t − v̄)ᵀ under every query's pattern."""
    weighted = pattern[..., None] * (k[:, None] - (pattern @ k)[:, :, None])  # [head, query, key, d_head]
    return weighted.mT @ (v[:, None] - (pattern @ v)[:, :, None])


def _asymmetry(C: Tensor, gram_Q: Tensor, gram_O: Tensor, products: Tensor) -> Float[Tensor, "draw head query"]:
    """√((‖J‖² − tr J²) ÷ (‖J‖² + tr J²)); NaN where J is zero."""
    square = ((gram_Q[:, None] @ C @ gram_O[:, None]) * C).sum((-2, -1))
    looped = C @ products[:, :, None]  # [draw, head, query, d_head, d_head]: J J's trace through d_head
    trace = (looped * looped.mT).sum((-2, -1))
    ratio = (square - trace).clamp(min=0) / (square + trace).clamp(min=torch.finfo(square.dtype).tiny)
    return ratio.sqrt().where(square > 0, math.nan)
