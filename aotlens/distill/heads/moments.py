"""The predictors in closed form: the training mean, the mean at each position, and the best linear map. From one pass.

The linear map minimises Σ‖t − B x̃‖² over the training tokens: B = (Σ t x̃ᵀ)(Σ x̃ x̃ᵀ)⁻¹, x̃ with a last 1 (hidden = 0). In
whitened coordinates the matrix to invert is all but the identity, so the sums lose no digits.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


class Moments:
    """Sums over training tokens, in float64. `x [layer, d_model + 1, tokens]`, `t [head, out, tokens]`, as columns."""

    def __init__(self, heads_of_layer: list[slice], d_in: int, n_out: int, n_pos: int, device: torch.device) -> None:
        self.heads_of_layer = heads_of_layer
        n_heads = heads_of_layer[-1].stop
        wide: dict = {"dtype": torch.float64, "device": device}
        self.n = torch.zeros((), **wide)
        self.xx = torch.zeros(len(heads_of_layer), d_in, d_in, **wide)
        self.tx = torch.zeros(n_heads, n_out, d_in, **wide)
        self.t_by_position = torch.zeros(n_heads, n_out, n_pos, **wide)
        self.n_by_position = torch.zeros(n_pos, **wide)

    def add(self, x: Float[Tensor, "layer d tokens"], t: Float[Tensor, "head out tokens"], positions: Tensor) -> None:
        """Add a piece; sums within it are taken in its own type."""
        self.n += x.shape[2]
        self.xx += torch.bmm(x, x.transpose(1, 2)).double()
        for layer, heads in enumerate(self.heads_of_layer):
            self.tx[heads] += torch.matmul(t[heads], x[layer].T).double()
        self.t_by_position.index_add_(2, positions, t.double())
        self.n_by_position += torch.bincount(positions, minlength=len(self.n_by_position)).double()

    def mean(self) -> Float[Tensor, "head out"]:
        return self.t_by_position.sum(2) / self.n

    def position_means(self) -> Float[Tensor, "head out pos"]:
        """Return the mean of each position; the training mean where a position had no token."""
        seen = self.n_by_position > 0
        means = self.t_by_position / self.n_by_position.clamp(min=1)
        return torch.where(seen, means, self.mean()[:, :, None])

    def linear(self) -> Float[Tensor, "head out d"]:
        """Return B of every head; the smallest one where inputs do not span their space."""
        maps = []
        for layer, heads in enumerate(self.heads_of_layer):
            inverse = torch.linalg.pinv(self.xx[layer] / self.n, rtol=1e-10, hermitian=True)
            maps.append(self.tx[heads] / self.n @ inverse)
        return torch.cat(maps)

    def tensors(self) -> dict[str, Tensor]:
        names = ("n", "xx", "tx", "t_by_position", "n_by_position")
        return {name: getattr(self, name) for name in names}

    def load(self, tensors: dict[str, Tensor]) -> None:
        for name, own in self.tensors().items():
            own.copy_(tensors[name])
