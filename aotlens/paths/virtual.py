"""Virtual weights: a weight lifted to the whole sequence, and heads in a row as one head."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.paths.kronecker import Kronecker


def virtual_weight(W: Float[Tensor, "p q"], n: int) -> Kronecker:
    """W̃ = I_n ⊗ W: the same transformation at each of `n` positions (*structures*, Definition 19).

    Its column form I_n ⊗ Wᵀ is the block-diagonal matrix of the paper. Raises `ValueError` for n < 1.
    """
    if n < 1:
        raise ValueError(f"virtual_weight: expected n ≥ 1 positions, got {n}.")
    return Kronecker(torch.eye(n, dtype=W.dtype, device=W.device), W)
