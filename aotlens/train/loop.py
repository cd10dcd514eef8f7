"""The training loop.

A run writes two things: OUT, a checkpoint folder that is whole at every moment, and OUT.training/state.safetensors,
from which a killed run resumes. Batches are a function of (seed, step) and everything else is in the state, so on a
CPU a resumed run ends with the weights of an unbroken one, bit for bit.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from aotlens.checkpoints import save_checkpoint
from aotlens.conventions import Progress
from aotlens.data import BatchSampler, mask_tokens, validation_windows
from aotlens.evaluate import mask_id_of
from aotlens.models import AttentionOnlyTransformer, resolve_device
from aotlens.train.corpus import TrainingData
from aotlens.train.distributed import World, describe, join_world, local_device
from aotlens.train.optimiser import learning_rate, make_optimiser
from aotlens.train.recipe import Recipe, Stage
from aotlens.train.report import final_metrics, make_info, running_metrics
from aotlens.train.state import load_state, save_state

_READ_EVERY = 10  # steps between readings of the loss on a GPU
_SEED_STRIDE = 1_000_003  # between the batch seeds of a run's stages


class TrainingError(ValueError):
    """Training that cannot start or go on; the last good checkpoint is whole."""


@dataclass
class _Run:
    """Where a run is: what the state file keeps beside weights and moments."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    loss_sum: float = 0.0
    """Of the steps since the last line of history."""
    loss_steps: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


def train(
    recipe: Recipe,
    data: TrainingData,
    out: str | Path,
    *,
    device: str = "auto",
    resume: bool = False,
    command: str = "",
    progress: Progress | None = None,
    on_loss: Callable[[float], None] | None = None,
    stop_after_steps: int | None = None,
) -> Path:
    """Run `recipe` on `data` and leave a checkpoint in `out`; returns its path.

    `resume` continues from the last saved state (from the start where there is none). `stop_after_steps` ends early
    with a saved state, as a kill after a save would. After every step on a CPU, every ten on a GPU, `on_loss(loss)`
    gets the mean loss of the steps since the last call, in nats, and `progress(done, total)` counts tokens.

    Raises `TrainingError` for an output that exists, and for a loss that is not finite, naming the step.
    """
    out = Path(out)
    state_path = _state_path(out)
    target = local_device(resolve_device(device))
    with join_world(target) as world:
        check_start(out, resume)
        torch.manual_seed(recipe.seed)
        tokenizer = data.tokenizer.with_mask() if recipe.objective == "masked" else data.tokenizer
        model = AttentionOnlyTransformer(recipe.model_config(tokenizer.d_vocab), tokenizer).to(target)
        model.recompute_activations = recipe.recompute_activations
        model.unigram_counts = torch.zeros(tokenizer.d_vocab, dtype=torch.long)
        model.unigram_counts[: data.tokenizer.d_vocab] = torch.as_tensor(data.train.counts())
        optimiser = make_optimiser(model, recipe)
        run = _Run()
        if resume and state_path.exists():
            run = _Run(**load_state(state_path, model, optimiser, _settings(recipe, data)))
        saver = _Saver(recipe, data, out, state_path, command, describe(target))
        _run_stages(model, optimiser, run, world, saver, progress, on_loss, stop_after_steps)
        if world.leads and run.step == recipe.n_steps:
            saver.finish(model, run)
        world.wait()
    return out


def _state_path(out: Path) -> Path:
    return out.with_name(out.name + ".training") / "state.safetensors"


def _settings(recipe: Recipe, data: TrainingData) -> dict[str, Any]:
    """What a resumed run must share with the one that was killed."""
    return {**recipe.to_dict(), "corpus sha256": data.sha256, "training tokens": len(data.train)}


def check_start(out: Path, resume: bool) -> None:
    """Raise `TrainingError` where a run into `out` would overwrite something, or has nothing to go on with."""
    state_path = _state_path(out)
    if not resume and (out.exists() or state_path.exists()):
        raise TrainingError(f"{out} exists already; choose another --out, remove it, or continue it with --resume.")
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
    recipe, data, device = saver.recipe, saver.data, model.device
    trained: nn.Module = model
    if world.size > 1:
        trained = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    windows = validation_windows(data.validation, min(256, model.cfg.n_ctx), max_windows=64)
    non_finite = torch.zeros((), dtype=torch.long, device=device)  # 1 + the first step whose loss was not finite
    started, done_before = time.perf_counter(), run.seconds
    pending = torch.zeros((), device=device)  # losses not yet read: on a GPU, reading waits for it
    pending_steps = 0
    for step, stage, stage_step, sampler in _steps(recipe, data, run.step):
        if stop_after_steps is not None and step >= stop_after_steps:
            if world.leads:
                saver.save(model, optimiser, run)
            return
        rows, targets = _batch(sampler, stage_step, recipe, model)
        rows = world.rows(rows).to(device, non_blocking=True)
        targets = None if targets is None else world.rows(targets).to(device, non_blocking=True)
        rate = learning_rate(stage, stage_step)
        loss = world.mean(_update(trained, optimiser, rows, targets, rate, recipe))
        non_finite = torch.where((non_finite == 0) & ~loss.isfinite(), step + 1, non_finite)
        run.step, run.tokens = step + 1, run.tokens + stage.batch_size * stage.sequence_length
        run.seconds = done_before + time.perf_counter() - started
        due = {what: _due(run.tokens, stage, every) for what, every in _intervals(recipe)}
        last = run.step == recipe.n_steps
        pending, pending_steps = pending + loss.float(), pending_steps + 1
        if device.type == "cpu" or pending_steps == _READ_EVERY or any(due.values()) or last:
            _refuse_non_finite(int(non_finite), saver.out)
            run.loss_sum, run.loss_steps = run.loss_sum + pending.item(), run.loss_steps + pending_steps
            if on_loss is not None and world.leads:
                on_loss(pending.item() / pending_steps)
            if progress is not None and world.leads:
                progress(run.tokens, recipe.total_tokens)
            pending, pending_steps = torch.zeros_like(pending), 0
        if not world.leads:
            continue
        if due["log"] or due["evaluate"] or last:
            line = {
                "step": run.step,
                "tokens": run.tokens,
                "seconds": round(run.seconds, 1),
                "learning_rate": rate,
            }
            line["loss"] = run.loss_sum / max(1, run.loss_steps)
            run.loss_sum, run.loss_steps = 0.0, 0
            if due["evaluate"] or last:
                line |= running_metrics(model, windows)
            run.history.append(line)
        if due["save"]:
            saver.save(model, optimiser, run)


def _intervals(recipe: Recipe) -> tuple[tuple[str, int], ...]:
    return (("log", recipe.log_tokens), ("evaluate", recipe.evaluate_tokens), ("save", recipe.save_tokens))


def _due(tokens: int, stage: Stage, every: int) -> bool:
    """Whether the last step passed a multiple of `every` tokens."""
    return tokens // every > (tokens - stage.batch_size * stage.sequence_length) // every


def _steps(recipe: Recipe, data: TrainingData, done: int) -> Iterator[tuple[int, Stage, int, BatchSampler]]:
    """(step, stage, step within the stage, sampler) for every step not yet done."""
    first = 0
    for index, stage in enumerate(recipe.stages):
        random_only = stage.repeat_fraction == 1.0 and stage.repeat_source == "random"
        sampler = BatchSampler(
            tokens=None if random_only else data.train,
            d_vocab=data.tokenizer.d_vocab,
            batch_size=stage.batch_size,
            sequence_length=stage.sequence_length,
            seed=recipe.seed + _SEED_STRIDE * (index + 1),
            repeat_fraction=stage.repeat_fraction,
            repeat_source=stage.repeat_source,
        )
        for stage_step in range(max(0, done - first), stage.n_steps):
            yield first + stage_step, stage, stage_step, sampler
        first += stage.n_steps


def _batch(
    sampler: BatchSampler, stage_step: int, recipe: Recipe, model: AttentionOnlyTransformer
) -> tuple[Tensor, Tensor | None]:
    """The rows of a step and, where tokens are hidden, the targets; None where each next token is the target."""
    rows = sampler.batch(stage_step)
    if recipe.objective == "next_token":
        return rows, None
    return mask_tokens(rows, mask_id_of(model), sampler.seed, stage_step)


def _update(
    trained: nn.Module,
    optimiser: torch.optim.Optimizer,
    rows: Tensor,
    targets: Tensor | None,
    rate: float,
    recipe: Recipe,
) -> Tensor:
    """One AdamW step; the loss before it, detached, NaN where the gradient was not finite."""
    for group in optimiser.param_groups:
        group["lr"] = rate
    loss = add_gradients(trained, rows, targets, recipe)
    norm = update_weights(trained, optimiser, recipe)
    return torch.where(norm.isfinite(), loss, torch.nan)


def update_weights(trained: nn.Module, optimiser: torch.optim.Optimizer, recipe: Recipe) -> Tensor:
    """Clip the gradients, make AdamW's step and forget them; their norm before it."""
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
    autocast = torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda" or (kind == "cpu" and recipe.cpu_autocast))
    total = torch.zeros((), device=rows.device)
    for begin in range(0, len(rows), at_once):
        part = slice(begin, begin + at_once)
        share = len(rows[part]) / len(rows)
        goes_on = begin + at_once < len(rows)
        with trained.no_sync() if goes_on and isinstance(trained, DistributedDataParallel) else nullcontext():
            with autocast:
                loss = trained(rows[part], return_type="loss", targets=None if targets is None else targets[part])
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

    recipe: Recipe
    data: TrainingData
    out: Path
    state_path: Path
    command: str
    device: str

    def save(self, model: AttentionOnlyTransformer, optimiser: torch.optim.Optimizer, run: _Run) -> None:
        """The state, then the checkpoint so far: a run killed between the two goes on from the newer state."""
        metrics: dict[str, Any] = next(
            (line for line in reversed(run.history) if {"validation_loss", "masked_loss"} & line.keys()), {}
        )
        info = make_info(self.recipe, self.data, run.tokens, run.seconds, self.device, self.command, metrics)
        save_state(self.state_path, model, optimiser, dict(vars(run)), _settings(self.recipe, self.data))
        save_checkpoint(self.out, model, info, history=run.history)

    def finish(self, model: AttentionOnlyTransformer, run: _Run) -> None:
        """The finished checkpoint, its metrics measured on the weights as stored; the state is no longer needed."""
        dtype = getattr(torch, self.recipe.weights_dtype)
        with torch.no_grad():
            for tensor in model.state_dict().values():
                if tensor.is_floating_point():
                    tensor.copy_(tensor.to(dtype))
        metrics = final_metrics(model, self.data, self.recipe.validation_tokens)
        info = make_info(self.recipe, self.data, run.tokens, run.seconds, self.device, self.command, metrics)
        save_checkpoint(self.out, model, info, history=run.history, weights_dtype=dtype)
        shutil.rmtree(self.state_path.parent, ignore_errors=True)
