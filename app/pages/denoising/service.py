"""Prompts in the plane, their energies and the ways down them: `aotlens.denoise`, remembered."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from app.core import Core
from app.core.cache import Cache
from app.core.errors import RequestError
from app.core.parameters import within
from app.pages.denoising.address import PARAMETERS, DenoisingState
from app.pages.denoising.service_training import Trainings

if TYPE_CHECKING:
    from aotlens.denoise import Descent, EnergyPlane, Prompts, Task

#: Fields of the address that the plane shows, but for the query.
PLANE = ("task", "energy", *PARAMETERS)
#: Points of the energy, a side; prompts over which errors are averaged, and those that the best scales are sought on.
GRID, N_PROMPTS = 61, 400
#: How far the plane reaches, in the largest coordinate of what was drawn.
_REACH = 1.2


@dataclass(frozen=True, kw_only=True, eq=False)
class Plane:
    """One prompt's energy, and what many prompts lose on average."""

    task: Task
    prompts: Prompts
    """The one that is shown."""
    plane: EnergyPlane
    mean: Descent
    """Of many prompts."""

    @property
    def reach(self) -> float:
        """Both axes end at ± this."""
        return float(self.plane.x[-1])


class Denoising:
    """Planes by what was asked for."""

    def __init__(self, core: Core) -> None:
        self._planes: Cache[DenoisingState, Plane] = core.memory.cache(core.settings.n_planes)
        self.trainings = Trainings(core)

    def plane(self, state: DenoisingState) -> Plane:
        """The energy and its prompt. Raises RequestError for steps that leave the numbers' range."""
        first = DenoisingState()
        state = DenoisingState(**{name: getattr(state, name) for name in PLANE})
        if state.task != "mixtures":
            state = replace(state, components=first.components)
        return self._planes.get(state, lambda: _said(lambda: _plane(state)))

    def descent(self, state: DenoisingState) -> Descent:
        """The way of the one query, from where the state has it."""
        import torch

        made = self.plane(state)
        prompts = made.prompts
        if state.query is not None:
            at = [min(max(value, -made.reach), made.reach) for value in (*state.query, 0.0)[:2]]
            prompts = replace(prompts, query=torch.tensor([at], dtype=torch.float64))
        return _said(lambda: _descend(state, made.task, prompts))

    def best(self, state: DenoisingState) -> tuple[float, float]:
        """The α and β that lose least on this task: for softmax by a scan of β, for linear attention the product."""
        import torch

        from aotlens.denoise import landscape, optimal_linear_scale

        task = task_of(state)
        if state.energy == "hopfield":
            scale = optimal_linear_scale(task, state.tokens)
        else:
            prompts = task.sample(N_PROMPTS, state.tokens, seed_of_many(state))
            betas = torch.logspace(-1, 1.6, 60, dtype=torch.float64)
            scale = landscape(prompts, torch.ones(1, dtype=torch.float64), betas).minimum
        return PARAMETERS["alpha"].within(round(scale.alpha, 3)), PARAMETERS["beta"].within(round(scale.beta, 3))


def task_of(state: DenoisingState) -> Task:
    """The task in the plane: a line, the circle of radius 1, or components on that circle."""
    from aotlens.denoise import GaussianMixtures, LinearSubspaces, Spheres

    if state.task == "spheres":
        return Spheres(n=2, d=1, radius=1.0, noise_variance=state.noise)
    if state.task == "subspaces":
        return LinearSubspaces(n=2, d=1, signal_variance=1.0, noise_variance=state.noise)
    return GaussianMixtures(
        n=2, n_components=state.components, radius=1.0, component_variance=0.02, noise_variance=state.noise
    )


def from_form(**form: Any) -> DenoisingState:
    """What stands in the page's controls; numbers within their bounds."""
    return DenoisingState(**within(PARAMETERS, form))


def to_dict(state: DenoisingState) -> dict[str, Any]:
    """For the browser, without the query."""
    return {name: value for name, value in asdict(state).items() if name in PLANE}


def from_dict(data: dict[str, Any], query: Any = None) -> DenoisingState:
    """What `to_dict` made, with the query where it has been put."""
    return DenoisingState(**data, query=None if not query else tuple(map(float, query)))


def _plane(state: DenoisingState) -> Plane:
    import torch

    from aotlens.denoise import energy_on_plane

    task = task_of(state)
    prompts = task.sample(1, state.tokens, state.seed)
    drawn = torch.cat([prompts.context[0], prompts.query, prompts.target])
    reach = max(_REACH * float(drawn.abs().max()), 1.5)
    axis = torch.linspace(-reach, reach, GRID, dtype=torch.float64)
    plane = energy_on_plane(
        prompts.context[0], axis, axis, energy=state.energy, alpha=state.alpha, beta=state.beta
    )  # fmt: skip
    mean = _descend(state, task, task.sample(N_PROMPTS, state.tokens, seed_of_many(state)))
    return Plane(task=task, prompts=prompts, plane=plane, mean=mean)


def _descend(state: DenoisingState, task: Task, prompts: Prompts) -> Descent:
    from aotlens.denoise import ENERGIES, descend

    gamma = state.share * ENERGIES[state.energy].attention_step(state.alpha, state.beta)
    scales = {"alpha": state.alpha, "beta": state.beta}
    return descend(task, prompts, energy=state.energy, **scales, step_size=gamma, n_steps=state.steps)


def seed_of_many(state: DenoisingState) -> int:
    """The seed of the prompts over which errors are averaged."""
    return 1000 + state.seed  # no prompt is drawn twice


def _said(work: Any) -> Any:
    try:
        return work()
    except ValueError as error:
        raise RequestError(f"The descent cannot be shown: {error}") from error
