"""One layer of attention as an in-context denoiser (*in-context-denoising* §3).

With the context X `[L, n]` and the query x̃ `[n]` as rows, and two n × n matrices,

    linear     x̂ = (1/L) x̃ W_QK Xᵀ X W_OV                                        (Eq. 11)
    softmax    x̂ = softmax(x̃ W_QK Xᵀ) X W_OV                                      (Eq. 12)
    gaussian   x̂ = softmax(−½‖x_t W_K − x̃ W_Q‖²) X W_OV, W_Q = W_QK, W_K = I       (Eq. 14)

The paper writes columns: its W_KQ is our W_QKᵀ, its W_PV our W_OVᵀ. The query is no key of its own. Scaled identities,
W_QK = β I and W_OV = α I, are what training finds; linear attention depends on the product αβ only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_choice, require_whole
from aotlens.denoise.tasks import Prompts, Task
from aotlens.results import Result


def second_moment(context: Float[Tensor, "*batch context n"]) -> Float[Tensor, "*batch n n"]:
    """Return S = (1/L) XᵀX, all that linear attention reads of a context."""
    return context.mT @ context / context.shape[-2]


def attend(
    context: Float[Tensor, "*batch context n"],
    query: Float[Tensor, "*batch n"],
    W_QK: Float[Tensor, "*weights n n"],
    W_OV: Float[Tensor, "*weights n n"],
    kind: str,
) -> Float[Tensor, "*broadcast n"]:
    """Return the layer's estimate x̂ of every prompt.

    Leading dimensions of the weights broadcast against the prompts': weights `[run, 1, n, n]` and prompts `[prompt,
    …]` give `[run, prompt, n]`. Raises `ValueError` for an unknown `kind`.
    """
    if kind == linear.__name__:  # n × n numbers instead of a pattern over the context
        return attend_linear(second_moment(context), query, W_QK, W_OV)
    pattern = attention_pattern(context, _times(query, W_QK), kind)
    return _times(_mean_token(pattern, context), W_OV)


def attend_linear(
    moment: Float[Tensor, "*batch n n"],
    query: Float[Tensor, "*batch n"],
    W_QK: Float[Tensor, "*weights n n"],
    W_OV: Float[Tensor, "*weights n n"],
) -> Float[Tensor, "*broadcast n"]:
    """Return x̃ W_QK S W_OV: linear attention from the context's `second_moment` alone."""
    recalled = (_times(query, W_QK)[..., None, :] @ moment)[..., 0, :]
    return _times(recalled, W_OV)


def _times(rows: Float[Tensor, "*rows n"], weights: Float[Tensor, "*weights n n"]) -> Float[Tensor, "*broadcast n"]:
    """Each row times its matrix; where all prompts share one (`[…, 1, n, n]`) as one product, which is much faster."""
    if weights.ndim > 2 and weights.shape[-3] == 1 and rows.ndim > 1:
        return rows @ weights[..., 0, :, :]
    return (rows[..., None, :] @ weights)[..., 0, :]


def attention_pattern(
    context: Float[Tensor, "*batch context n"], query: Float[Tensor, "*query n"], kind: str
) -> Float[Tensor, "*broadcast context"]:
    """Return the query's weight on context tokens; `query` is x̃ W_QK. Raises `ValueError` for an unknown `kind`."""
    return PATTERNS[require_choice("kind", kind, PATTERNS)](context, query)


def linear(context: Tensor, query: Tensor) -> Tensor:
    """Return scores ÷ L: shares that need not be positive nor sum to 1 (Eq. 11)."""
    return _scores(context, query) / context.shape[-2]


def softmax(context: Tensor, query: Tensor) -> Tensor:
    """Return the softmax of the scores (Eq. 12)."""
    return _scores(context, query).softmax(-1)


def gaussian(context: Tensor, query: Tensor) -> Tensor:
    """Return exp(−½‖x_t − x̃ W_QK‖²), normalised (Eq. 14); the query's own square is the same for all keys, and drops
    out."""
    return (_scores(context, query) - 0.5 * context.pow(2).sum(-1)).softmax(-1)


#: The kinds of layer, by name.
PATTERNS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {rule.__name__: rule for rule in (linear, softmax, gaussian)}


def _scores(context: Tensor, query: Tensor) -> Tensor:
    """x_t · query for every token t: `[…, L]`."""
    if _shares_context(context, query):
        return (context[0] @ query.permute(1, 2, 0)).permute(2, 0, 1)
    # A row times keys, since keys times a column take more than twice as long (MKL's batched products).
    return (query[..., None, :] @ context.mT)[..., 0, :]


def _mean_token(pattern: Tensor, context: Tensor) -> Tensor:
    """Σ_t pattern_t x_t: `[…, n]`."""
    if _shares_context(context, pattern):
        return (pattern.transpose(0, 1) @ context[0]).transpose(0, 1)
    return (pattern[..., None, :] @ context)[..., 0, :]


def _shares_context(context: Tensor, rows: Tensor) -> bool:
    """Whether several runs `[run, prompt, …]` read the same context `[1, prompt, L, n]`, which matmul would copy."""
    return context.ndim == 4 and rows.ndim == 3 and len(context) == 1 < len(rows)


@dataclass(frozen=True, kw_only=True)
class Scale(Result):
    """A scaled-identity layer, its loss a prompt, and what the loss is over."""

    alpha: float
    """α of W_OV = α I; for linear attention 1, since only the product counts."""
    beta: float
    """β of W_QK = β I; for linear attention the product αβ."""
    loss: float
    """Squared error a prompt, summed over n."""
    method: str


def optimal_linear_scale(task: Task, n_context: int) -> Scale:
    """Return the best product αβ for linear attention with scaled identities on L tokens, and its loss, in closed form.

    αβ = E tr(S M) ÷ E tr(S² (M + σ_Z² I)) (`Task.linear_moments`); for subspaces that is
    L ÷ ((L + d + 1)(σ_0² + σ_Z²)), below the paper's limit 1 ÷ (σ_0² + σ_Z²) as long as L is finite. Raises
    `ValueError` for a context of no token.
    """
    require_whole("n_context", n_context, 1)
    signal, power = task.linear_moments(n_context)
    return Scale(alpha=1.0, beta=signal / power, loss=task.mean_square - signal**2 / power, method="closed form")


@dataclass(frozen=True, kw_only=True)
class Landscape(Result):
    """The loss of scaled identities over α and β (Figure 6), on given prompts."""

    alphas: Float[Tensor, " alpha"]
    betas: Float[Tensor, " beta"]
    loss: Float[Tensor, "alpha beta"]
    """Mean squared error a prompt, summed over n."""
    best_alpha: Float[Tensor, " beta"]
    """The best α at each β, in closed form (the loss is a parabola in α)."""
    best_loss: Float[Tensor, " beta"]
    """The loss at the best α of each β."""

    @property
    def minimum(self) -> Scale:
        """The best of the scanned β with its best α, which need not lie on the grid of α."""
        best = int(self.best_loss.argmin())
        return Scale(
            alpha=float(self.best_alpha[best]),
            beta=float(self.betas[best]),
            loss=float(self.best_loss[best]),
            method=f"scan of {len(self.betas)} values of β",
        )


def landscape(
    prompts: Prompts,
    alphas: Float[Tensor, " alpha"],
    betas: Float[Tensor, " beta"],
    kind: str = "softmax",
) -> Landscape:
    """Return the mean loss of W_OV = α I, W_QK = β I for every α and β, in one batched computation.

    For one β the estimate is α·h_β, so that the loss is E‖x‖² − 2α E⟨h_β, x⟩ + α² E‖h_β‖²: two means for each β give
    the whole column. Time: O(betas · prompts · L · n); memory: one β's patterns, prompts · L numbers. Raises
    `ValueError` for empty α or β.
    """
    if not len(alphas) or not len(betas):
        raise ValueError("landscape: expected at least one α and one β.")
    overlaps, powers = [], []
    for beta in betas.to(prompts.query):
        identity = beta * torch.eye(prompts.query.shape[-1], dtype=prompts.query.dtype, device=prompts.query.device)
        estimate = attend(prompts.context, prompts.query, identity, torch.eye(len(identity)).to(identity), kind)
        overlaps.append((estimate * prompts.target).sum(-1).mean())
        powers.append(estimate.pow(2).sum(-1).mean())
    overlap, power = torch.stack(overlaps), torch.stack(powers)
    square = prompts.target.pow(2).sum(-1).mean()
    grid = alphas.to(prompts.query)[:, None]
    best_alpha = torch.where(power > 0, overlap / power.clamp(min=torch.finfo(power.dtype).tiny), 0.0)
    return Landscape(
        alphas=alphas,
        betas=betas,
        loss=square - 2 * grid * overlap + grid.pow(2) * power,
        best_alpha=best_alpha,
        best_loss=square - best_alpha * overlap,
    )
