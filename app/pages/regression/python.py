"""Python for the In-context regression page's views."""

from __future__ import annotations

from app.core import Core
from app.pages.regression.address import N_SHOWN, RegressionState
from app.pages.regression.ids import ids
from app.pages.regression.service import N_HEADS, N_PROMPTS, N_READ, N_SUPPORT, Asked, Regressions
from app.shell.python import loading, python_of

_VIEWS = {"attention": "patterns.pattern", "weighted": "patterns.value_weighted()", "scores": "patterns.scores"}


@python_of(ids.ERRORS, ids.LAYERS, ids.GRID, ids.MAP, ids.WITHOUT, ids.MOTIFS, ids.SUPPORT)
def python(core: Core, service: Regressions, state: RegressionState, panel: str) -> list[str]:
    """The lines that give a panel's numbers."""
    asked = service.asked_of(state)
    if panel == ids.ERRORS:
        return _errors(service, asked)
    lines = [*loading(asked.checkpoint), *_task(asked)]
    seed = f"seed={asked.seed}"
    if panel == ids.LAYERS:
        call = f"aotlens.denoise.regression.read_layers(model, task, n_prompts={N_READ}, {seed})"
        return [*lines, f"result = {call}.probe_errors  # [state, example]"]
    if panel == ids.SUPPORT:
        call = f"aotlens.denoise.regression.support_scores(model, task, n_prompts={N_SUPPORT}, {seed})"
        return [*lines, f"result = {call}.to_frame()"]
    n_prompts = N_HEADS if panel in (ids.WITHOUT, ids.MOTIFS) else N_SHOWN
    points = service.n_points(asked.checkpoint)
    lines.append(f"prompts = task.sample({n_prompts}, {points}, {asked.seed})")
    if panel == ids.MOTIFS:
        return [
            "from aotlens.heads.prompts import attention_in_prompts",
            *lines,
            "result = attention_in_prompts(model, prompts.tokens).chance_frame()",
        ]
    if panel == ids.WITHOUT:
        call = (
            f"aotlens.heads.ablate_each(model, prompts.tokens, {state.how!r}, targets=prompts.targets, batch_size=64)"
        )
        return [*lines, f"result = {call}.to_frame()"]
    lines.append(f"patterns = aotlens.heads.attention_patterns(model, prompts.tokens[{state.prompt}])")
    at = "" if panel == ids.GRID else f"[{', '.join(map(str, state.head or (0, 0)))}]"
    return [*lines, f"result = {_VIEWS[state.view]}{at}"]


def _task(asked: Asked) -> list[str]:
    return [f"task = aotlens.data.{asked.task!r}"]


def _errors(service: Regressions, asked: Asked) -> list[str]:
    points = max(service.n_points(name) for name in asked.models)
    of_prompts = f"task, n_prompts={N_PROMPTS}, seed={asked.seed}"
    return [
        "import aotlens",
        "from aotlens.denoise.regression import baseline_errors, regression_errors, shown_baselines",
        "",
        *_task(asked),
        f"models = {{name: aotlens.load(name) for name in {list(asked.models)!r}}}",
        f"errors = {{name: regression_errors(model, {of_prompts}) for name, model in models.items()}}",
        "for name in shown_baselines(task):",
        f"    errors[name] = baseline_errors(name, {of_prompts}, n_points={points})",
        "result = {name: each.to_frame() for name, each in errors.items()}",
    ]
