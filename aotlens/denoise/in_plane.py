"""One prompt in the plane: its energy, the way of its query down it, and the errors beside those of many prompts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from aotlens.conventions import require_whole
from aotlens.denoise.descent import ENERGIES, Descent, EnergyPlane, descend, energy_on_plane
from aotlens.denoise.one_layer import Scale, landscape, optimal_linear_scale
from aotlens.denoise.tasks import Prompts, Task
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

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

    def to_frame(self) -> pd.DataFrame:
        """Return one row a point: the context's tokens, the query's way by steps, and the answers (kind,
        step, x, y)."""
        import pandas as pd

        descent = self.descent
        rows = [("context", None, *token) for token in self.prompts.context[0].tolist()]
        rows += [("path", step, *point) for step, point in enumerate(descent.states[:, 0].tolist())]
        answers = {"attention": descent.attention, "Bayes": descent.bayes, "clean": self.prompts.target}
        rows += [(kind, None, *points[0].tolist()) for kind, points in answers.items()]
        return pd.DataFrame(rows, columns=["kind", "step", "x", "y"])


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
        """Return one row a step: the mean over prompts with its levels, and the one query's."""
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

    Steps are `share` times the γ at which a step is the attention layer. A `query` of one's own is put within the
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
    if energy not in ENERGIES:
        raise ValueError(f"energy={energy!r}: expected one of {', '.join(map(repr, ENERGIES))}.")
    gamma = share * ENERGIES[energy].attention_step(alpha, beta)
    return descend(task, prompts, energy=energy, alpha=alpha, beta=beta, step_size=gamma, n_steps=n_steps)


def best_scale(task: Task, prompts: Prompts, energy: str = "memory") -> Scale:
    """Return the α and β with the least squared error after one step of attention.

    For the linear energy the product αβ counts alone: it is `optimal_linear_scale` of the task, with α = 1. For the
    softmax one, β is scanned in 60 steps from 0.1 to 40 on the prompts, each with its best α. Raises `ValueError` for
    an unknown energy.
    """
    if energy not in ENERGIES:
        raise ValueError(f"energy={energy!r}: expected one of {', '.join(map(repr, ENERGIES))}.")
    if energy == "hopfield":
        return optimal_linear_scale(task, prompts.context.shape[1])
    betas = torch.logspace(-1, 1.6, 60, dtype=torch.float64)
    return landscape(prompts, torch.ones(1, dtype=torch.float64), betas).minimum
