"""Python for the In-context denoising page's views."""

from __future__ import annotations

from app.core import Core
from app.pages.denoising.address import DenoisingState
from app.pages.denoising.ids import ids
from app.pages.denoising.service import GRID, N_PROMPTS, Denoising, seed_of_many, task_of


def python(core: Core, service: Denoising, state: DenoisingState, panel: str) -> list[str]:
    """The lines that give a panel's numbers."""
    task, made = task_of(state), service.plane(state)
    scales = f"energy={state.energy!r}, alpha={state.alpha}, beta={state.beta}"
    lines = [
        "import torch",
        f"from aotlens.denoise import ENERGIES, {type(task).__name__}, descend, energy_on_plane",
        "",
        f"task = {task!r}",
    ]
    if panel == ids.PLANE:
        return [
            *lines,
            f"context = task.sample(1, {state.tokens}, {state.seed}).context[0]",
            f"axis = torch.linspace(-{made.reach!r}, {made.reach!r}, {GRID}, dtype=torch.float64)",
            f"result = energy_on_plane(context, axis, axis, {scales}).energy",
        ]
    return [
        *lines,
        f"prompts = task.sample({N_PROMPTS}, {state.tokens}, {seed_of_many(state)})  # the mean is over these",
        f"gamma = {state.share} * ENERGIES[{state.energy!r}].attention_step({state.alpha}, {state.beta})",
        f"descent = descend(task, prompts, {scales}, step_size=gamma, n_steps={state.steps})",
        "result = descent.errors  # [step, prompt]",
    ]
