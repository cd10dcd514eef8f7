"""The best affine map of rank r (reduced-rank regression), and a network of r ReLU units that is that map.

Of all C of rank r, Σ‖t − C x̃ − c‖² over training tokens is least for C = P Pᵀ B: B is the best map of any rank, and P
`[out, r]` holds the first eigenvectors of B Σ Bᵀ, Σ the covariance of x̃ (Izenman 1975). As a network, with the rows of
Pᵀ B divided by their lengths s,

    W₁ = [Pᵀ B / s, β],   W₂ = [P s, c − P s β]          relu(v + β) = v + β while v ≥ −β

so units whose biases β exceed all that they meet are linear. A network of w units can thus always do what the best map
of rank w does; training by gradients may not find that, least for heads that are almost linear.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.distill.heads.moments import Moments

_MARGIN = 1.5  # biases beyond the farthest input seen


def reduced_rank(
    moments: Moments, linear: Float[Tensor, "head out d"], rank: int
) -> tuple[Float[Tensor, "head out _r"], Float[Tensor, "head _r d_1"], Float[Tensor, "head out"]]:
    """Return (P, Pᵀ B, c) of every head; r is at most `out`. `linear` is `moments.linear()`, its last column the
    constant."""
    left, right, constants = [], [], []
    for layer, heads in enumerate(moments.heads_of_layer):
        second = moments.xx[layer] / moments.n
        mean = second[:-1, -1]
        covariance = second[:-1, :-1] - torch.outer(mean, mean)
        B, constant = linear[heads, :, :-1], linear[heads, :, -1]
        _, vectors = torch.linalg.eigh(B @ covariance @ B.transpose(1, 2))
        P = vectors.flip(2)[:, :, :rank]
        PtB = P.transpose(1, 2) @ B
        left.append(P)
        right.append(PtB)
        # The mean of t is that of B x̃ + constant, whatever the rank.
        constants.append(constant + (B @ mean) - (P @ (PtB @ mean)[:, :, None])[:, :, 0])
    return torch.cat(left), torch.cat(right), torch.cat(constants)


def as_network(
    moments: Moments,
    linear: Float[Tensor, "head out d"],
    width: int,
    x: Float[Tensor, "layer d tokens"],
) -> tuple[Float[Tensor, "head width d"], Float[Tensor, "head out width_1"]]:
    """Return (W₁, W₂) of every head: linear on the inputs x and half as far again. Units beyond rank `out` are zero."""
    P, PtB, constant = reduced_rank(moments, linear, width)
    n_heads, n_out, rank = P.shape
    sizes = PtB.norm(dim=2, keepdim=True)
    directions = torch.where(sizes > 0, PtB / sizes.clamp(min=1e-300), 0.0)
    W1 = linear.new_zeros(n_heads, width, linear.shape[2])
    W2 = linear.new_zeros(n_heads, n_out, width + 1)
    W1[:, :rank, :-1] = directions
    for layer, heads in enumerate(moments.heads_of_layer):
        seen = directions[heads].to(x.dtype) @ x[layer, :-1]
        W1[heads, :rank, -1] = _MARGIN * seen.abs().amax(2).to(linear.dtype)
    W2[:, :, :rank] = P * sizes.transpose(1, 2)
    W2[:, :, width] = constant - (W2[:, :, :rank] @ W1[:, :rank, -1:])[:, :, 0]
    return W1, W2
