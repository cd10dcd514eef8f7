"""Linear attention built by hand that performs one step of gradient descent (von Oswald et al. 2023).

For the squared loss L(w) = ½ Σ_{j ≤ i} (y_j − w·x_j)² of i examples, a step of size γ from w = 0 gives

    w = −γ ∇L(0) = γ Σ_j y_j x_j,        so that a query x gets the estimate γ Σ_j y_j (x_j·x)

which is what linear attention sums where keys are x_j, values y_j and the query x. φ = "linear" divides scores by the
number of visible keys, the query's own included, so that γ is η/(i + 1) on paired tokens and η/(2i + 1) on interleaved
ones. Scores are not scaled (`attn_scale = 1`) and there is no norm; float64 models match the step to 1e-10.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.data import RegressionPrompts
from aotlens.models import AttentionOnlyTransformer, ModelConfig


def paired_tokens(prompts: RegressionPrompts) -> Float[Tensor, "prompt pos d_model"]:
    """Return tokens (x_j, y_j) of all examples but the last, whose label is to be found: it stands last as (x, 0)."""
    labels = prompts.labels.clone()
    labels[:, -1] = 0.0
    return torch.cat([prompts.inputs, labels[..., None]], dim=-1)


def one_step_paired(d: int, n_points: int, step_size: float | int = 1.0) -> AttentionOnlyTransformer:
    """Return one layer on `paired_tokens`: the last coordinate of its output at the query is the estimate, γ = η/(i +
    1).

    One head with W_Q = W_K the projection on x, W_V that on y and W_O η times its transpose; what it writes comes on
    top of the query's own y = 0. `n_points` counts the query. Weights are float64.
    """
    model = AttentionOnlyTransformer(_plain(n_layers=1, d_model=d + 1, d_head=d + 1, n_ctx=n_points)).double()
    on_x = torch.diag(torch.cat([torch.ones(d), torch.zeros(1)]).double())
    on_y = torch.eye(d + 1, dtype=torch.float64) - on_x
    _set_head(model, 0, query=on_x, key=on_x, value=on_y, output=step_size * on_y)
    return model


def one_step_interleaved(d: int, n_points: int, step_size: float | int = 1.0) -> AttentionOnlyTransformer:
    """Return two layers on interleaved tokens that give the estimate at every x, γ = η/(2i + 1) after i examples.

    The stream holds, side by side, the token (d numbers), a copy (d), and the estimate (1). In the first layer the
    query y_j, at position p = 2j − 1 from 0, has the score p + 1 with the position before, by one-hot positions that
    are added to queries and keys, and p + 1 visible keys: it copies x_j with weight 1. In the second the query x has
    the score x·x_j with y_j's token, which has x_j as its copy, and takes y_j from it. Weights are float64.
    """
    n_ctx = 2 * n_points - 1
    token, copy, estimate = slice(0, d), slice(d, 2 * d), 2 * d
    positions = slice(2 * d + 1, 2 * d + 1 + n_ctx)
    width = 2 * d + 1 + n_ctx
    cfg = _plain(n_layers=2, d_model=width, d_head=width, n_ctx=n_ctx, positions="qk", d_in=d, d_out=1)
    model = AttentionOnlyTransformer(cfg).double()
    empty = torch.zeros(width, width, dtype=torch.float64)
    from_before, at_position, to_copy = empty.clone(), empty.clone(), empty.clone()
    at_position[positions, positions] = torch.eye(n_ctx, dtype=torch.float64)
    for position in range(1, n_ctx, 2):  # the labels
        from_before[positions.start + position, positions.start + position - 1] = position + 1.0
    to_copy[token, copy] = torch.eye(d, dtype=torch.float64)
    _set_head(model, 0, query=from_before, key=at_position, value=to_copy, output=torch.eye(width).double())
    of_token, of_copy, to_estimate = empty.clone(), empty.clone(), empty.clone()
    of_token[token, token] = of_copy[copy, token] = torch.eye(d, dtype=torch.float64)
    to_estimate[0, estimate] = step_size  # a label stands in the first coordinate of its token
    _set_head(model, 1, query=of_token, key=of_copy, value=to_estimate, output=torch.eye(width).double())
    with torch.no_grad():
        weights = dict(model.named_parameters())
        weights["pos_embed.W_pos"].copy_(torch.eye(width).double()[positions])
        weights["embed.W"].copy_(torch.eye(width).double()[token])
        weights["unembed.W_U"].copy_(torch.eye(width).double()[:, estimate : estimate + 1])
    return model


def one_step(prompts: RegressionPrompts, step_sizes: Float[Tensor, " point"]) -> Float[Tensor, "prompt point"]:
    """Estimate every label by one step of gradient descent from w = 0, with the step size γ_i after i examples."""
    sums = (prompts.labels[..., None] * prompts.inputs).cumsum(1)
    before = torch.nn.functional.pad(sums[:, :-1], (0, 0, 1, 0))
    return step_sizes * (before * prompts.inputs).sum(-1)


def _plain(**sizes: object) -> ModelConfig:
    """One head of linear attention a layer, unscaled, from vectors to vectors, without a norm."""
    fixed = {
        "n_heads": 1,
        "phi": "linear",
        "attn_scale": 1.0,
        "norm": None,
        "positions": None,
        "read_in": "vectors",
        "read_out": "vectors",
    }
    return ModelConfig.from_dict({**fixed, **sizes})


@torch.no_grad()
def _set_head(
    model: AttentionOnlyTransformer, layer: int, *, query: Tensor, key: Tensor, value: Tensor, output: Tensor
) -> None:
    weights = dict(model.named_parameters())
    for letter, matrix in zip("QKVO", (query, key, value, output), strict=True):
        weights[f"blocks.{layer}.attn.W_{letter}"][0] = matrix
