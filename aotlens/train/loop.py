"""The training loop.

A run writes OUT, a checkpoint folder that is whole at every moment, OUT.training/state.safetensors, from which a killed
run resumes, and where its recipe says so OUT.snapshots/, its weights at moments of it. Batches are a function of (seed,
step) and everything else is in the state, so on a CPU a resumed run ends with the weights of an unbroken one, bit for
bit.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from aotlens import __version__
from aotlens.checkpoints import CheckpointInfo, save_checkpoint
from aotlens.checkpoints.snapshots import SnapshotWriter, snapshots_folder
from aotlens.checkpoints.units import OBJECTIVE_WORDS
from aotlens.conventions import Progress
from aotlens.data.sources import portable_spec
from aotlens.models import AttentionOnlyTransformer, resolve_device
from aotlens.train.distributed import World, describe, join_world, local_device
from aotlens.train.objectives import OBJECTIVES, Objective
from aotlens.train.optimiser import learning_rate, make_optimiser
from aotlens.train.recipe import Recipe
from aotlens.train.sections import Stage
from aotlens.train.state import copy_state, load_state, loss_has_fallen, planned_steps, save_state
from aotlens.untrusted import boundary, require_types

_READ_EVERY = 10  # steps between readings of the loss on a GPU


class TrainingError(ValueError):
    """Training that cannot start or go on; the last good checkpoint is whole."""


@dataclass
class _Run:
    """The state of a run: what the state file keeps besides weights and moments."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    loss_sum: float = 0.0
    """The sum of the losses of the steps since the last line of history."""
    loss_steps: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    loss_fall: dict[str, float] = field(default_factory=dict)
    """The fall of the loss up to the last snapshot (`aotlens.train.state.loss_has_fallen`)."""


def train(
    recipe: Recipe,
    data: Any,
    out: str | Path,
    *,
    device: str = "auto",
    resume: bool = False,
    command: str = "",
    progress: Progress | None = None,
    on_loss: Callable[[float], None] | None = None,
    stop_after_steps: int | None = None,
) -> Path:
    """Run `recipe` on `data`, what its objective's `prepare` gave, and leave a checkpoint in `out`; returns its path.

    `resume` continues from the last saved state (from the start where there is none). `stop_after_steps` ends early
    with a saved state, as a kill after a save would. After every step on a CPU, every ten on a GPU, `on_loss(loss)`
    gets the mean loss of the steps since the last call, and `progress(done, total)` counts tokens (or images).

    Under torchrun one process, that of rank 0, has the disk on which `out` and its state are: it reads them for all.

    Data and output are checked before the first step, and a checkpoint is written after the last one, before anything
    is measured: what fails from then on costs no weights.

    Raises `TrainingError` for an output that exists, for a loss that is not finite, naming the step, and for weights
    that cannot be measured, which are kept; `ValueError` for batches that do not divide over the processes, and for
    processes that were started differently.
    """
    out = Path(out)
    state_path = _state_path(out)
    target = local_device(resolve_device(device))
    with join_world(target) as world:
        world.require_equal_shares(stage.batch_size for stage in recipe.stages)
        world.on_leader(lambda: check_start(out, resume))
        torch.manual_seed(recipe.seed)
        objective = OBJECTIVES[recipe.objective](recipe, data)
        objective.check_data()
        world.require_alike(_settings_of_process(objective, target))
        model = objective.make_model().to(target)
        model.recompute_activations = recipe.recompute_activations
        optimiser = make_optimiser(model, recipe)
        run = _Run()
        if resume and world.on_leader(state_path.exists):
            counters = world.on_leader(lambda: load_state(state_path, model, optimiser, _settings(objective)))
            with boundary(state_path, "the state of the run"):
                require_types(_Run, counters, "counters")
                run = _Run(**counters)
            copy_state(model, optimiser, world)
        saver = _Saver(objective, out, state_path, command, describe(target))
        world.on_leader(lambda: saver.rehearse(model))
        _run_stages(model, optimiser, run, world, saver, progress, on_loss, stop_after_steps)
        if world.leads and run.step == recipe.n_steps:
            saver.finish(model, run)
        world.wait()
    return out


def _state_path(out: Path) -> Path:
    return out.with_name(out.name + ".training") / "state.safetensors"


def _settings(objective: Objective[Any]) -> dict[str, Any]:
    """Return the settings that a resumed run must share with the one that was killed."""
    return {**objective.recipe.to_dict(), **objective.identity()}


def _settings_of_process(objective: Objective[Any], device: torch.device) -> dict[str, Any]:
    """Return the settings that processes of one run must share; machines of less memory may take fewer rows at once."""
    settings = {**_settings(objective), "aotlens": __version__, "torch": torch.__version__, "device": device.type}
    return {name: value for name, value in settings.items() if name != "rows_at_once"}


def check_start(out: Path, resume: bool) -> None:
    """Raise `TrainingError` where a run into `out` would overwrite something, or has nothing to go on with."""
    state_path = _state_path(out)
    taken = [path for path in (out, state_path, snapshots_folder(out)) if path.exists()]
    if taken and not resume:
        raise TrainingError(
            f"{taken[0]} exists already; choose another --out, remove it, or continue it with --resume."
        )
    if resume and (out / "config.json").exists() and not state_path.exists():
        raise TrainingError(f"{out} is finished: there is no training state beside it to resume from.")


def _run_stages(
    model: AttentionOnlyTransformer,
    optimiser: torch.optim.Optimizer,
    run: _Run,
    world: World,
    saver: _Saver,
    progress: Progress | None,
    on_loss: Callable[[float], None] | None,
    stop_after_steps: int | None,
) -> None:
    objective, device = saver.objective, model.device
    recipe = objective.recipe
    trained: nn.Module = model
    if world.size > 1:
        trained = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    non_finite = torch.zeros((), dtype=torch.long, device=device)  # 1 + the first step whose loss was not finite
    planned = planned_steps(recipe.snapshots, recipe.n_steps)
    if world.leads and recipe.snapshots is not None:
        saver.begin_snapshots(model, run, keep=run.step in planned)
    started, done_before = time.perf_counter(), run.seconds
    pending = torch.zeros((), device=device)  # losses not yet read: on a GPU, reading waits for it
    pending_steps = 0
    for step, number, stage_step in _steps(recipe, run.step):
        stage = recipe.stages[number]
        if stop_after_steps is not None and step >= stop_after_steps:
            if world.leads:
                saver.save(model, optimiser, run)
            return
        rows, targets = objective.batch(number, stage_step)
        rows = world.rows(rows).to(device, non_blocking=True)
        targets = None if targets is None else world.rows(targets).to(device, non_blocking=True)
        rate = learning_rate(stage, stage_step)
        loss = world.mean(_update(trained, optimiser, rows, targets, rate, recipe))
        non_finite = torch.where((non_finite == 0) & ~loss.isfinite(), step + 1, non_finite)
        run.step, run.tokens = step + 1, run.tokens + stage.batch_size * stage.sequence_length
        run.seconds = done_before + time.perf_counter() - started
        due = {what: _due(run.tokens, stage, every) for what, every in _intervals(recipe)}
        last = run.step == recipe.n_steps
        due["snapshot"] = run.step in planned
        pending, pending_steps = pending + loss.float(), pending_steps + 1
        mean_loss = None
        if device.type == "cpu" or pending_steps == _READ_EVERY or any(due.values()) or last:
            _refuse_non_finite(int(non_finite), saver.out)
            run.loss_sum, run.loss_steps = run.loss_sum + pending.item(), run.loss_steps + pending_steps
            mean_loss = pending.item() / pending_steps
            due["snapshot"] |= loss_has_fallen(recipe.snapshots, run.loss_fall, mean_loss)
            pending, pending_steps = torch.zeros_like(pending), 0
        if not world.leads:
            continue
        if due["log"] or due["evaluate"] or last:
            line = {
                "step": run.step,
                recipe.counted: run.tokens,
                "seconds": round(run.seconds, 1),
                "learning_rate": rate,
            }
            line["loss"] = run.loss_sum / max(1, run.loss_steps)
            run.loss_sum, run.loss_steps = 0.0, 0
            run.history.append(line)
        with saver.keeping(model, optimiser, run):
            if mean_loss is not None and on_loss is not None:
                on_loss(mean_loss)
            if mean_loss is not None and progress is not None:
                progress(run.tokens, recipe.total_tokens)
            if due["snapshot"]:
                saver.keep_snapshot(model, run)
            if due["evaluate"] and not last:
                run.history[-1] |= objective.running_metrics(model)
        if due["save"] or last:
            saver.save(model, optimiser, run)


def _intervals(recipe: Recipe) -> tuple[tuple[str, int], ...]:
    return (("log", recipe.log_tokens), ("evaluate", recipe.evaluate_tokens), ("save", recipe.save_tokens))


def _due(tokens: int, stage: Stage, every: int) -> bool:
    """Whether the last step passed a multiple of `every` tokens."""
    return tokens // every > (tokens - stage.batch_size * stage.sequence_length) // every


def _steps(recipe: Recipe, done: int) -> Iterator[tuple[int, int, int]]:
    """(step, stage, step within the stage) for every step not yet done."""
    first = 0
    for number, stage in enumerate(recipe.stages):
        for stage_step in range(max(0, done - first), stage.n_steps):
            yield first + stage_step, number, stage_step
        first += stage.n_steps


def _update(
    trained: nn.Module,
    optimiser: torch.optim.Optimizer,
    rows: Tensor,
    targets: Tensor | None,
    rate: float,
    recipe: Recipe,
) -> Tensor:
    """One step of the optimiser; the loss before it, detached, NaN where the gradient was not finite."""
    for group in optimiser.param_groups:
        group["lr"] = rate
    loss = add_gradients(trained, rows, targets, recipe)
    norm = update_weights(trained, optimiser, recipe)
    return torch.where(norm.isfinite(), loss, torch.nan)


def update_weights(trained: nn.Module, optimiser: torch.optim.Optimizer, recipe: Recipe) -> Tensor:
    """Clip the gradients, make the optimiser's step and forget them; their norm before it."""
    norm = nn.utils.clip_grad_norm_(trained.parameters(), recipe.clip)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return norm


def add_gradients(trained: nn.Module, rows: Tensor, targets: Tensor | None, recipe: Recipe) -> Tensor:
    """Add the gradients of the mean loss over `rows`, `rows_at_once` of them in a pass; the loss, detached.

    Each pass counts by its share of the rows, all of which have equally many targets. Processes exchange gradients
    in the last pass only.
    """
    kind, at_once = rows.device.type, recipe.rows_at_once or len(rows)
    wanted = OBJECTIVES[recipe.objective].autocast and (kind == "cuda" or (kind == "cpu" and recipe.cpu_autocast))
    autocast = torch.autocast(kind, torch.bfloat16, enabled=wanted)
    total = torch.zeros((), device=rows.device)
    for begin in range(0, len(rows), at_once):
        part = slice(begin, begin + at_once)
        share = len(rows[part]) / len(rows)
        goes_on = begin + at_once < len(rows)
        with trained.no_sync() if goes_on and isinstance(trained, DistributedDataParallel) else nullcontext():
            with autocast:
                own = None if targets is None else targets[part]
                loss = trained(
                    rows[part], return_type="loss", targets=own, label_smoothing=float(recipe.label_smoothing)
                )
            (loss * share).backward()
        total = total + loss.detach() * share
    return total


def _refuse_non_finite(first: int, out: Path) -> None:
    if first:
        raise TrainingError(
            f"the loss or its gradient was not finite at step {first}; training stopped. {out} keeps the last good "
            "checkpoint (if one was saved). Lower learning_rate or clip, or lengthen warmup_tokens, and start again."
        )


@dataclass
class _Saver:
    """Writes checkpoints and states of one run."""

    objective: Objective[Any]
    out: Path
    state_path: Path
    command: str
    device: str
    snapshots: SnapshotWriter | None = None

    def rehearse(self, model: AttentionOnlyTransformer) -> None:
        """Write a checkpoint next to `out` and remove it, to find obstacles before training."""
        if self.out.exists():
            return
        folder = self.state_path.with_name("rehearsal")
        try:
            save_checkpoint(folder, model, make_info(self.objective, 0, 0.0, self.device, self.command, {}))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):
                folder.parent.rmdir()

    @contextmanager
    def keeping(self, model: AttentionOnlyTransformer, optimiser: torch.optim.Optimizer, run: _Run) -> Iterator[None]:
        """Save the weights if an action between two steps fails. Raises `TrainingError` then."""
        try:
            yield
        except Exception as error:
            self.save(model, optimiser, run)
            raise TrainingError(
                f"training stopped after step {run.step}: {type(error).__name__}: {error}. {self.out} keeps the "
                "weights of that step, and --resume goes on from there."
            ) from error

    def begin_snapshots(self, model: AttentionOnlyTransformer, run: _Run, *, keep: bool) -> None:
        """Begin snapshots, which go on where the run does; with `keep` its weights at this moment are one."""
        self.snapshots = SnapshotWriter(self.out, run.step)
        if keep:
            self.keep_snapshot(model, run)

    def keep_snapshot(self, model: AttentionOnlyTransformer, run: _Run) -> None:
        assert self.snapshots is not None
        self.snapshots.add(run.step, run.tokens, model.state_dict())

    def save(self, model: AttentionOnlyTransformer, optimiser: torch.optim.Optimizer, run: _Run) -> None:
        """The state, then the checkpoint so far: a run killed between the two goes on from the newer state."""
        save_state(self.state_path, model, optimiser, dict(vars(run)), _settings(self.objective))
        loss = OBJECTIVE_WORDS[self.objective.recipe.objective].loss
        metrics: dict[str, Any] = next((line for line in reversed(run.history) if loss in line), {})
        info = make_info(self.objective, run.tokens, run.seconds, self.device, self.command, metrics)
        save_checkpoint(self.out, model, info, history=run.history)

    def finish(self, model: AttentionOnlyTransformer, run: _Run) -> None:
        """The finished checkpoint, its metrics measured on the weights as stored; the state is no longer needed.

        The last step has saved both, so that the weights stay whatever fails here. Raises `TrainingError` then.
        """
        dtype = getattr(torch, self.objective.recipe.weights_dtype)
        try:
            run.history[-1] |= self.objective.running_metrics(model)
            with torch.no_grad():
                for tensor in model.state_dict().values():
                    if tensor.is_floating_point():
                        tensor.copy_(tensor.to(dtype))
            metrics = self.objective.final_metrics(model)
            info = make_info(self.objective, run.tokens, run.seconds, self.device, self.command, metrics)
            save_checkpoint(self.out, model, info, history=run.history, weights_dtype=dtype)
        except Exception as error:
            raise TrainingError(
                f"{self.out} keeps the trained weights, but their figures could not be measured and saved: "
                f"{type(error).__name__}: {error}. --resume does that alone."
            ) from error
        shutil.rmtree(self.state_path.parent, ignore_errors=True)


def make_info(
    objective: Objective[Any],
    tokens: int,
    seconds: float,
    device: str,
    command: str,
    metrics: dict[str, Any],
) -> CheckpointInfo:
    """Return the checkpoint's metadata; the corpus by name and where it is had, never by a local path."""
    recipe, section = objective.recipe, objective.recipe.data_section
    return CheckpointInfo(
        name=recipe.name,
        description=recipe.description,
        recipe=recipe.to_dict(),
        command=command,
        corpus={
            "name": section.name or portable_spec(section.spec or ""),
            "source": section.source,
            "license": section.license,
            **objective.corpus(),
        },
        seed=recipe.seed,
        device=device,
        tokens_seen=tokens,
        seconds=round(seconds, 1),
        metrics=metrics,
    )
