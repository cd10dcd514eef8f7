"""AdamW on one vector of all weights: its step, the step undone, and the derivative of what comes after it.

With the gradient ĝ of step t = 1, 2, …, clipped to g = c ĝ, c = min(1, C ÷ (‖ĝ‖ + 10⁻⁶)), learning rate η, decay λ:

    m' = β₁ m + (1 − β₁) g        v' = β₂ v + (1 − β₂) g²
    θ' = (1 − η λ) θ − η m̂ ÷ (√(v̂ + ε_root) + ε),        m̂ = m' ÷ (1 − β₁ᵗ),  v̂ = v' ÷ (1 − β₂ᵗ)

PyTorch's AdamW (Loshchilov & Hutter 2019) with ε_root = 0. The update needs m' and v' alone, so a step is undone
without the gradient, θ = (θ' + η m̂ ÷ …) ÷ (1 − η λ), and the moments with the gradient at the θ that was found:
training runs backwards from its last state. Dividing by β multiplies rounding, so that only `AdamW.undoable` steps in a
row are undone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

_CLIP_EPS = 1e-6  # of `torch.nn.utils.clip_grad_norm_`
#: The largest growth that rounding, of some 10⁻¹⁶ in float64, may have while steps are undone.
_MOST_GROWTH = 1e4


class State(NamedTuple):
    """Weights and moments of all parameters, or a derivative with respect to them."""

    weights: Float[Tensor, "*measure parameter"]
    mean: Float[Tensor, "*measure parameter"]
    square: Float[Tensor, "*measure parameter"]


@dataclass(frozen=True, kw_only=True, eq=False)
class AdamW:
    """The optimiser of a recipe, with what does not change from step to step."""

    betas: tuple[float, float]
    clip: float
    decay: Float[Tensor, " parameter"]
    """λ of each weight."""
    eps: float = 1e-8
    eps_root: float = 0.0

    @property
    def undoable(self) -> int:
        """Steps that can be undone in a row in float64; 0 if a moment has no memory (β = 0)."""
        least = min(self.betas)
        return 0 if least <= 0 else int(math.log(_MOST_GROWTH) / -math.log(least))

    def clipped(self, gradient: Float[Tensor, " parameter"]) -> Float[Tensor, " parameter"]:
        """Return the gradient as the step takes it."""
        return gradient * min(1.0, self.clip / (float(gradient.norm()) + _CLIP_EPS))

    def step(self, state: State, gradient: Float[Tensor, " parameter"], t: int, rate: float) -> State:
        """Return the state after step t = 1, 2, … with this gradient, not yet clipped."""
        gradient = self.clipped(gradient)
        mean = state.mean.lerp(gradient, 1 - self.betas[0])
        square = state.square * self.betas[1] + (1 - self.betas[1]) * gradient.square()
        weights = state.weights * (1 - rate * self.decay) - self._update(mean, square, t, rate)
        return State(weights, mean, square)

    def weights_before(self, after: State, t: int, rate: float) -> Float[Tensor, " parameter"]:
        """Return the weights before the step that led to `after`."""
        return (after.weights + self._update(after.mean, after.square, t, rate)) / (1 - rate * self.decay)

    def moments_before(self, after: State, gradient: Float[Tensor, " parameter"]) -> tuple[Tensor, Tensor]:
        """Return both moments before the step that led to `after` with this gradient, not yet clipped."""
        gradient = self.clipped(gradient)
        mean = (after.mean - (1 - self.betas[0]) * gradient) / self.betas[0]
        square = (after.square - (1 - self.betas[1]) * gradient.square()) / self.betas[1]
        return mean, square.clamp(min=0)

    def back(
        self, adjoint: State, after: State, gradient: Float[Tensor, " parameter"], t: int, rate: float
    ) -> tuple[State, Float[Tensor, "measure parameter"]]:
        """Go back from dM/d(state after the step) to dM/d(state before it) with the gradient held, and dM/dĝ.

        Weights whose gradient has been 0 at every step so far (v' = 0) have no derivative through the update: it is
        taken as 0, which is right where no weight of a window makes their gradient another, as of a token never seen.
        """
        (beta, beta_square), clipped = self.betas, self.clipped(gradient)
        corrected = after.square / (1 - beta_square**t) + self.eps_root
        root, mean = corrected.sqrt(), after.mean / (1 - beta**t)
        per_mean = torch.where(after.square > 0, -rate / (1 - beta**t) / (root + self.eps), 0.0)
        per_square = rate * mean / (root + self.eps).square() / (2 * root * (1 - beta_square**t))
        per_square = torch.where(after.square > 0, per_square, 0.0)
        of_mean = adjoint.mean + adjoint.weights * per_mean
        of_square = adjoint.square + adjoint.weights * per_square
        before = State(adjoint.weights * (1 - rate * self.decay), beta * of_mean, beta_square * of_square)
        of_clipped = (1 - beta) * of_mean + 2 * (1 - beta_square) * clipped * of_square
        norm = float(gradient.norm())
        if norm + _CLIP_EPS <= self.clip:
            return before, of_clipped
        # dc/dĝ = −C ĝ ÷ (‖ĝ‖ (‖ĝ‖ + 10⁻⁶)²)
        along = (of_clipped @ gradient)[:, None] * gradient / norm
        return before, self.clip / (norm + _CLIP_EPS) * (of_clipped - along / (norm + _CLIP_EPS))

    def _update(self, mean: Tensor, square: Tensor, t: int, rate: float) -> Tensor:
        root = (square / (1 - self.betas[1] ** t) + self.eps_root).sqrt()
        return rate / (1 - self.betas[0] ** t) * mean / (root + self.eps)
