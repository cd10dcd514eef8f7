"""Gradient descent on the energy of a context, from its query: one step is attention, more are a Hopfield network.

`descend` follows queries for any number of steps of any size and measures each state against the clean token, beside
the Bayes answer (*in-context-denoising* Figure 5); `energy_on_plane` is the landscape that they move on, for n = 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_whole
from aotlens.denoise.bayes import predict, squared_errors
from aotlens.denoise.energies import hopfield_energy, hopfield_step, memory_energy, memory_step, trajectory
from aotlens.denoise.tasks import Prompts, Task
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class EnergyModel:
    """An energy of a context whose gradient step is a layer of attention with W_OV = α I and W_QK = β I."""

    attention: str
    """The kind of attention that one step is (`one_layer.PATTERNS`)."""
    energy: Callable[[Tensor, Tensor, float, float], Tensor]
    """`(state, context, α, β)` → E."""
    step: Callable[[Tensor, Tensor, float, float, float], Tensor]
    """`(state, context, α, β, γ)` → the state after one step of size γ."""
    attention_step: Callable[[float, float], float]
    """`(α, β)` → the γ at which the step is the layer itself."""


#: Eq. 16, whose step is softmax attention, and Eq. A.15, whose step is linear attention.
ENERGIES: dict[str, EnergyModel] = {
    "memory": EnergyModel(
        attention="softmax",
        energy=memory_energy,
        step=memory_step,
        attention_step=lambda alpha, beta: alpha,
    ),
    "hopfield": EnergyModel(
        attention="linear",
        energy=lambda state, context, alpha, beta: hopfield_energy(state, context, alpha * beta),
        step=lambda state, context, alpha, beta, gamma: hopfield_step(state, context, alpha * beta, gamma),
        attention_step=lambda alpha, beta: alpha * beta,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Descent(Result):
    """Queries moved by gradient descent on their contexts' energies."""

    energy: str
    alpha: float | int
    beta: float | int
    step_size: float | int
    """γ, the step size of the descent."""
    attention_step: float | int
    """The γ at which the first step is the attention layer."""
    states: Float[Tensor, "time prompt n"]
    """Entry 0 is the queries."""
    attention: Float[Tensor, "prompt n"]
    """The attention layer's estimate: one step of size `attention_step` from the query."""
    bayes: Float[Tensor, "prompt n"]
    errors: Float[Tensor, "time prompt"]
    """‖s − x‖², summed over n: how far each state is from the clean token."""
    attention_errors: Float[Tensor, " prompt"]
    bayes_errors: Float[Tensor, " prompt"]

    @property
    def headline(self) -> str:
        first, last = (float(self.errors[time].mean()) for time in (0, -1))
        layer, bayes = float(self.attention_errors.mean()), float(self.bayes_errors.mean())
        return (
            f"mean squared error {first:.3g} at the query, {layer:.3g} by attention, {last:.3g} after "
            f"{len(self.errors) - 1} steps, {bayes:.3g} by Bayes"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a row a time: the mean squared error over prompts, with attention's and Bayes's."""
        import pandas as pd

        return pd.DataFrame(
            {
                "step": range(len(self.errors)),
                "squared_error": self.errors.mean(1).tolist(),
                "attention": float(self.attention_errors.mean()),
                "bayes": float(self.bayes_errors.mean()),
            }
        )


def descend(
    task: Task,
    prompts: Prompts,
    *,
    energy: str = "memory",
    alpha: float | int,
    beta: float | int,
    step_size: float | int | None = None,
    n_steps: int = 1,
) -> Descent:
    """Take every prompt's query down the energy of its own context, and measure it against the clean token.

    `energy` is a name of `ENERGIES`, α and β scale W_OV = α I and W_QK = β I, and `step_size` is γ; None is the γ at
    which a step is the attention layer. Time: O(steps · prompts · L · n).

    Raises `ValueError` for an unknown energy, scales of 0, and steps after which a state is not finite.
    """
    require_whole("n_steps", n_steps, 0)
    if energy not in ENERGIES:
        raise ValueError(f"energy={energy!r}: expected one of {', '.join(map(repr, ENERGIES))}.")
    model = ENERGIES[energy]
    attention_step = model.attention_step(alpha, beta)
    gamma = attention_step if step_size is None else step_size
    states = trajectory(prompts.query, lambda state: model.step(state, prompts.context, alpha, beta, gamma), n_steps)
    attention = model.step(prompts.query, prompts.context, alpha, beta, attention_step)
    bayes = predict(task, prompts)
    return Descent(
        energy=energy,
        alpha=alpha,
        beta=beta,
        step_size=gamma,
        attention_step=attention_step,
        states=states,
        attention=attention,
        bayes=bayes,
        errors=(states - prompts.target).pow(2).sum(-1),
        attention_errors=squared_errors(attention, prompts),
        bayes_errors=squared_errors(bayes, prompts),
    )


@dataclass(frozen=True, kw_only=True)
class EnergyPlane(Result):
    """An energy over a part of the plane."""

    x: Float[Tensor, " column"]
    y: Float[Tensor, " row"]
    energy: Float[Tensor, "row column"]


def energy_on_plane(
    context: Float[Tensor, "context 2"],
    x: Float[Tensor, " column"],
    y: Float[Tensor, " row"],
    *,
    energy: str = "memory",
    alpha: float | int,
    beta: float | int,
) -> EnergyPlane:
    """Return the energy of a context of two dimensions at every point (x, y).

    Memory: rows · columns · L numbers. Raises `ValueError` for an unknown energy and scales of 0.
    """
    if energy not in ENERGIES:
        raise ValueError(f"energy={energy!r}: expected one of {', '.join(map(repr, ENERGIES))}.")
    states = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)
    return EnergyPlane(x=x, y=y, energy=ENERGIES[energy].energy(states, context, alpha, beta))
