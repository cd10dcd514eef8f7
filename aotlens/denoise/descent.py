"""Gradient descent on the energy of a context, from its query: one step is attention, more are a Hopfield network.

`descend` follows queries for any number of steps of any size and measures each state against the clean token, and
the Bayes answer too (*in-context-denoising* Figure 5); `energy_on_plane` is the landscape that they move on, for n = 2.
`descend_in_plane` is one such prompt, with its energy, the way of its query, and its errors next to those of many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_choice, require_whole, several
from aotlens.denoise.bayes import predict, squared_errors
from aotlens.denoise.energies import hopfield_energy, hopfield_step, memory_energy, memory_step, trajectory
from aotlens.denoise.one_layer import Scale, landscape, optimal_linear_scale
from aotlens.denoise.tasks import Prompts, Task
from aotlens.results import Result, data_frame

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
        """Return a row per time: the mean squared error over prompts, with attention's and Bayes's."""
        return data_frame(
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
    require_choice("energy", energy, ENERGIES)
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
    require_choice("energy", energy, ENERGIES)
    states = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)
    return EnergyPlane(x=x, y=y, energy=ENERGIES[energy].energy(states, context, alpha, beta))


#: The reach of the plane, as a factor of the largest coordinate of what was drawn, and its least.
_REACH, _LEAST = 1.2, 1.5


@dataclass(frozen=True, kw_only=True)
class PlaneDescent(Result):
    """The energy of a prompt's context, and gradient descent on it from the query (*in-context-denoising* Figure 5)."""

    prompts: Prompts
    """The one prompt, its query where it has been put."""
    plane: EnergyPlane
    descent: Descent

    @property
    def reach(self) -> float:
        """Both axes end at ± this."""
        return float(self.plane.x[-1])

    @property
    def headline(self) -> str:
        return self.descent.headline

    def sentences(self) -> str:
        """Return the squared errors of the query: as drawn, after one step of attention, after all steps, of Bayes."""
        descent = self.descent
        return (
            f"This query: {float(descent.errors[0, 0]):.3g} from the clean token (squared), attention "
            f"{float(descent.attention_errors[0]):.3g}, after {several(len(descent.errors) - 1, 'step')} "
            f"{float(descent.errors[-1, 0]):.3g}, Bayes {float(descent.bayes_errors[0]):.3g}."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row per point: the context's tokens, the query's way by steps, and the answers (kind,
        step, x, y)."""
        descent = self.descent
        rows = [("context", None, *token) for token in self.prompts.context[0].tolist()]
        rows += [("path", step, *point) for step, point in enumerate(descent.states[:, 0].tolist())]
        answers = {"attention": descent.attention, "Bayes": descent.bayes, "clean": self.prompts.target}
        rows += [(kind, None, *points[0].tolist()) for kind, points in answers.items()]
        return data_frame(rows, columns=["kind", "step", "x", "y"])


@dataclass(frozen=True)
class DescentErrors(Result):
    """Errors by step, of many prompts and of one query."""

    mean: Descent
    """The errors over many prompts."""
    single: Descent
    """The errors of one, for as many steps."""

    @property
    def headline(self) -> str:
        return self.mean.headline

    def to_frame(self) -> pd.DataFrame:
        """Return one row per step: the mean over prompts with its levels, and the one query's."""
        return self.mean.to_frame().assign(this_query=self.single.errors[:, 0].tolist())


def descend_in_plane(
    task: Task,
    n_context: int,
    seed: int = 0,
    *,
    energy: str = "memory",
    alpha: float | int,
    beta: float | int,
    share: float | int = 1.0,
    n_steps: int = 20,
    query: tuple[float | int, float | int] | None = None,
    n_points: int = 61,
) -> PlaneDescent:
    """Draw one prompt of a task in two dimensions, and take its query down its energy.

    Steps are `share` times the γ at which a step is the attention layer. A custom `query` is put within the
    plane; None is the one that was drawn. The plane has `n_points` a side. Raises `ValueError` for a task of other
    dimensions and as `descend`.
    """
    require_whole("n_context", n_context, 1)
    require_whole("n_steps", n_steps, 0)
    require_whole("n_points", n_points, 2)
    if task.n != 2:
        raise ValueError(f"descend_in_plane: expected a task in 2 dimensions, got n={task.n}.")
    prompts = task.sample(1, n_context, seed)
    drawn = torch.cat([prompts.context[0], prompts.query, prompts.target])
    reach = max(_REACH * float(drawn.abs().max()), _LEAST)
    if query is not None:
        point = [min(max(value, -reach), reach) for value in query]
        prompts = replace(prompts, query=torch.tensor([point], dtype=torch.float64))
    axis = torch.linspace(-reach, reach, n_points, dtype=torch.float64)
    descent = descend_by_share(task, prompts, share, energy=energy, alpha=alpha, beta=beta, n_steps=n_steps)
    plane = energy_on_plane(prompts.context[0], axis, axis, energy=energy, alpha=alpha, beta=beta)
    return PlaneDescent(prompts=prompts, plane=plane, descent=descent)


def descend_by_share(
    task: Task,
    prompts: Prompts,
    share: float | int,
    *,
    energy: str,
    alpha: float | int,
    beta: float | int,
    n_steps: int,
) -> Descent:
    """Run `descend` in steps of `share` times the γ at which a step is the attention layer. Raises `ValueError` as
    it."""
    require_whole("n_steps", n_steps, 0)
    require_choice("energy", energy, ENERGIES)
    gamma = share * ENERGIES[energy].attention_step(alpha, beta)
    return descend(task, prompts, energy=energy, alpha=alpha, beta=beta, step_size=gamma, n_steps=n_steps)


def best_scale(task: Task, prompts: Prompts, energy: str = "memory") -> Scale:
    """Return the α and β with the least squared error after one step of attention.

    For the linear energy the product αβ counts alone: it is `optimal_linear_scale` of the task, with α = 1. For the
    softmax one, β is scanned in 60 steps from 0.1 to 40 on the prompts, each with its best α. Raises `ValueError` for
    an unknown energy.
    """
    require_choice("energy", energy, ENERGIES)
    if energy == "hopfield":
        return optimal_linear_scale(task, prompts.context.shape[1])
    betas = torch.logspace(-1, 1.6, 60, dtype=torch.float64)
    return landscape(prompts, torch.ones(1, dtype=torch.float64), betas).minimum
