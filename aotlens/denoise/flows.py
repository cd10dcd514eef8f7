"""The symmetry of trained heads' Jacobians over real contexts: which heads are nearly gradient flows of an energy.

A head moves a query with (normalised) state s by f(s) = Σ_t g_t(s) v_t W_O, g the softmax of its scores. With the
context fixed, f is a gradient flow where its Jacobian is symmetric (*in-context-denoising* I.2). In rows,

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
from aotlens.denoise.subspaces import centred_frame, random_basis
from aotlens.heads.reader import TokenSequences
from aotlens.models import AttentionOnlyTransformer, folded_norm, hook_names, require_ours
from aotlens.models.phi import PHIS
from aotlens.models.weights import double
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


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
        """Return one row a head, the most symmetric first, beside its rotations; p is over rotations on these
        contexts."""
        import pandas as pd

        n_layers, n_heads = self.asymmetry.shape
        frame = pd.DataFrame(
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
    if windows.ndim != 2 or windows.shape[1] <= every or every < 1 or n_draws < 1:
        raise ValueError(
            f"expected windows [window, pos] longer than every={every}, and n_draws={n_draws} of at least 1, got "
            f"tokens {list(windows.shape)}."
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
