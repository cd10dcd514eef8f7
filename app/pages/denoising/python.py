"""Python for the In-context denoising page's views."""

from __future__ import annotations

from app.core import Core
from app.pages.denoising.address import DenoisingState
from app.pages.denoising.ids import PANELS, ids
from app.pages.denoising.service import GRID, N_PROMPTS, Denoising, seed_of_many, task_of
from app.pages.denoising.service_training import N_PROMPTS as N_LANDSCAPE
from app.pages.denoising.service_training import Trainings
from app.shell.python import python_of


@python_of(ids.PLANE, ids.ERRORS, *PANELS)
def python(core: Core, service: Denoising, state: DenoisingState, panel: str) -> list[str] | None:
    """The lines that give a panel's numbers."""
    if panel in PANELS:
        return _of_training(service.trainings, state, panel)
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


def _of_training(trainings: Trainings, state: DenoisingState, panel: str) -> list[str] | None:
    name = state.training or trainings.first()
    if name is None:
        return None
    layers = trainings.record(name).layers
    run = layers.seeds.index(state.run) if state.run in layers.seeds else 0
    lines = ["import aotlens", "", f"training = {trainings.loading(name)}", "layers = training.layers"]
    if panel == ids.CURVES:
        return [*lines, "result = layers.test_loss  # [run, epoch]; layers.train_loss begins an epoch later"]
    if panel == ids.MATRICES:
        return [*lines, "W_QK, W_OV = layers.plain  # [run, n, n]", f"result = W_QK[{run}], W_OV[{run}]"]
    if panel == ids.RUNS:
        return [*lines, "result = training.to_frame()"]
    shown, draw = trainings.landscape(name), f"{N_LANDSCAPE}, layers.settings.n_context, 2 * layers.seeds[0] + 1"
    axes = [
        f"{scale} = torch.linspace({values[0].item()!r}, {values[-1].item()!r}, {len(values)}, dtype=torch.float64)"
        for scale, values in (("alphas", shown.alphas), ("betas", shown.betas))
    ]
    loss = "aotlens.denoise.landscape(prompts, alphas, betas, layers.kind).loss  # [alpha, beta]"
    return ["import torch", *lines, f"prompts = layers.task.sample({draw})", *axes, f"result = {loss}"]
