"""Five features in two neurons (*structures*, Example 26).

    x̂(x) = ReLU(W₂ ReLU(W₁ x + b₁) + b₂),   W₁ = [v₁ … v₅],  W₂ = 1.5 W₁ᵀ,  b₂ = −W₂ b₁ − 0.5·1,
    v_k = (cos 2πk/5, sin 2πk/5),   b₁ = (0.82, 0.97)

The paper writes columns; here a row is an input, so W₁ is `[5, 2]` and W₂ `[2, 5]`. It finds e₁ erased on e₁ + e₃;
in fact both are, and e₂, which is not in the input, appears at 1.5·2·cos 72° − 0.5 ≈ 0.43.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from analyses._superposition.interference import polygon
from aotlens.results import Result

GAIN: Final = 1.5
THRESHOLD: Final = 0.5
HIDDEN_BIAS: Final = (0.82, 0.97)


@dataclass(frozen=True, kw_only=True, eq=False)
class Pentagon(Result):
    """The network's four arrays, float64, inputs as rows."""

    W_1: Float[Tensor, "5 2"]
    b_1: Float[Tensor, " 2"]
    W_2: Float[Tensor, "2 5"]
    b_2: Float[Tensor, " 5"]

    def hidden(self, x: Float[Tensor, "*batch 5"]) -> Float[Tensor, "*batch 2"]:
        """Return the two neurons before their ReLU; it does nothing where they are positive, as for every single
        feature."""
        return x @ self.W_1 + self.b_1

    def before_output(self, x: Float[Tensor, "*batch 5"]) -> Float[Tensor, "*batch 5"]:
        """Return z, what the last ReLU gets: 1.5 ⟨v_j, v_k⟩ − 0.5 for e_k."""
        return self.hidden(x).relu() @ self.W_2 + self.b_2

    def __call__(self, x: Float[Tensor, "*batch 5"]) -> Float[Tensor, "*batch 5"]:
        return self.before_output(x).relu()


def pentagon() -> Pentagon:
    """Return the network with the paper's numbers. Feature k of the paper (from 1) is index k − 1."""
    W_1 = polygon(5)
    W_2, b_1 = GAIN * W_1.T, torch.tensor(HIDDEN_BIAS, dtype=torch.float64)
    return Pentagon(W_1=W_1, b_1=b_1, W_2=W_2, b_2=-b_1 @ W_2 - THRESHOLD)
