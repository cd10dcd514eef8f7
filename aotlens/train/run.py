"""A recipe from its name to its checkpoint, with a progress bar; and its cost, before any of it is trained.

`dry_run` times passes forward and backward and steps of the optimiser on random tokens or pixels, which cost what real
ones cost, so no data are needed. Passes are of one row first, and of twice as many while they stay short, up to the
recipe's own: on a CPU, a full pass of a large model would take minutes.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aotlens.checkpoints import home_folder
from aotlens.conventions import several
from aotlens.data.sources import portable_spec
from aotlens.models import AttentionOnlyTransformer, count_parameters, resolve_device
from aotlens.models.device import memory_bytes
from aotlens.train.distributed import describe
from aotlens.train.loop import add_gradients, check_start, train, update_weights
from aotlens.train.objectives import OBJECTIVES
from aotlens.train.optimiser import make_optimiser
from aotlens.train.recipe import Recipe, load_recipe
from aotlens.train.sections import Stage, silent


def run_recipe(
    name_or_path: str,
    *,
    corpus: str | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    resume: bool = False,
    seed: int | None = None,
    learning_rate: float | None = None,
    tokens: int | None = None,
    tokenizer: str | None = None,
    rows_at_once: int | None = None,
) -> Path:
    """Train a recipe; returns the checkpoint's folder (`$AOTLENS_HOME/checkpoints/NAME` unless `out` says otherwise).

    `corpus` replaces the recipe's corpus or images; `seed`, `learning_rate` (of the last stage), `tokens` (of the last
    stage, or what else the recipe counts), `tokenizer` (`gpt2_bpe:FOLDER`) and `rows_at_once` too, and the card records
    what was used. Raises `ValueError` with what to do for everything a user can get wrong.
    """
    options: dict[str, Any] = {"seed": seed, "learning_rate": learning_rate, "tokens": tokens}
    options |= {"tokenizer": tokenizer, "rows_at_once": rows_at_once}
    recipe = changed_recipe(name_or_path, **options)
    target = Path(out) if out is not None else home_folder() / recipe.name
    leads = os.environ.get("RANK", "0") == "0"
    if leads:
        check_start(target, resume)  # before the corpus is read
    data = OBJECTIVES[recipe.objective].prepare(recipe, corpus, announce=_say if leads else silent)
    command = command_of(name_or_path, recipe, corpus, **options)
    kind, _, _ = recipe.corpus.tokenizer.partition(":")  # a card names no local folder
    recipe = dataclasses.replace(recipe, corpus=dataclasses.replace(recipe.corpus, tokenizer=kind))
    with _Bar(recipe.name, recipe.total_tokens, enabled=leads, counted=recipe.counted) as bar:
        return train(
            recipe, data, target, device=device, resume=resume, command=command, progress=bar, on_loss=bar.say_loss
        )


def changed_recipe(
    name_or_path: str,
    seed: int | None = None,
    learning_rate: float | None = None,
    tokens: int | None = None,
    tokenizer: str | None = None,
    rows_at_once: int | None = None,
) -> Recipe:
    """Return the recipe with what the command gives in place of its own; None keeps the recipe's."""
    recipe = load_recipe(name_or_path)
    last = recipe.stages[-1]
    last = dataclasses.replace(
        last,
        learning_rate=last.learning_rate if learning_rate is None else learning_rate,
        tokens=last.tokens if tokens is None else tokens,
    )
    corpus = recipe.corpus if tokenizer is None else dataclasses.replace(recipe.corpus, tokenizer=tokenizer)
    return dataclasses.replace(
        recipe,
        seed=recipe.seed if seed is None else seed,
        stages=(*recipe.stages[:-1], last),
        corpus=corpus,
        rows_at_once=recipe.rows_at_once if rows_at_once is None else rows_at_once,
    )


def command_of(name_or_path: str, recipe: Recipe, corpus: str | None, **options: int | float | str | None) -> str:
    """Return the command that trains this again, a local folder named by its kind only; `options` are of
    `changed_recipe`."""
    words = ["aotlens train", name_or_path]
    if corpus is not None and corpus != recipe.data_section.spec:
        words.append(f"{'--corpus' if recipe.counted == 'tokens' else '--data'} {portable_spec(corpus)}")
    tokenizer = options.pop("tokenizer", None)
    if tokenizer is not None:
        words.append(f"--tokenizer {str(tokenizer).partition(':')[0]}:FOLDER")
    words += [f"--{name.replace('_', '-')} {value}" for name, value in options.items() if value is not None]
    return " ".join(words)


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


class _Bar:
    """A tqdm bar over tokens (or images), with loss, tokens a second and the time left."""

    def __init__(self, name: str, total: int, enabled: bool, counted: str = "tokens") -> None:
        from tqdm import tqdm

        unit = "tok" if counted == "tokens" else f" {counted}"
        speed: dict[str, Any] = {"unit_scale": True, "mininterval": 0.5, "maxinterval": 30}
        self._bar = tqdm(total=total, desc=name, unit=unit, disable=not enabled, **speed)

    def say_loss(self, loss: float) -> None:
        """Show the loss when the bar is drawn next."""
        self._bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)

    def __call__(self, tokens: int, total_tokens: int) -> None:
        if self._bar.n == 0 and tokens:
            self._bar.initial = tokens  # a resumed run: the rate counts from here
            self._bar.n = self._bar.last_print_n = tokens
        self._bar.update(tokens - self._bar.n)
        if tokens >= total_tokens:
            self._bar.set_description(f"{self._bar.desc.removesuffix(': ')}, trained; measuring on what was held out")

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()


_SHORT_PASS = 4.0  # seconds: shorter ones are tried with twice as many rows
_TIMED_PASSES = 3
_GIB = 2**30
_OPTIMISERS = {"adamw": "AdamW", "lion": "Lion"}
_MOMENTS = {"adamw": 2, "lion": 1}


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """The counts and measurements of a dry run; times are of this device alone."""

    recipe: Recipe
    device: str
    parameters: int
    table_4_parameters: int
    """Matrices and the token embedding alone, as *aot*'s Table 4 counts."""
    rows_measured: int
    """Rows of the passes that were timed."""
    rows_of_a_pass: int
    state_bytes: int
    """Weights, gradients and the optimiser's moments, AdamW's two or Lion's one."""
    activation_bytes: int
    """Kept between forward and backward for a full pass: measured for the rows measured, and scaled. Where activations
    are computed again, each block's input."""
    peak_bytes: int | None
    """The GPU's measured peak; None on a CPU."""
    pass_seconds: float
    optimiser_seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Tokens, or what else the recipe counts, over a whole run with each step's optimiser in it."""
        return self.recipe.total_tokens / self.seconds

    @property
    def seconds(self) -> float:
        """The seconds of all steps of the recipe, without evaluation and saving."""
        per_token = self.pass_seconds / (self.rows_measured * self.recipe.stages[-1].sequence_length)
        return self.recipe.total_tokens * per_token + self.recipe.n_steps * self.optimiser_seconds

    @property
    def text(self) -> str:
        """The figures, a line each."""
        last, counted = self.recipe.stages[-1], self.recipe.counted
        rows = f"rows of {last.sequence_length} tokens" if counted == "tokens" else counted
        passes = -(-last.batch_size // self.rows_of_a_pass)
        peak = "" if self.peak_bytes is None else f"; measured peak {self.peak_bytes / _GIB:.2f} GiB"
        memory = self.state_bytes + self.activation_bytes
        return "\n".join(
            [
                f"{self.recipe.name} on {self.device}",
                f"parameters: {self.parameters:,} ({self.table_4_parameters:,} in matrices and the token embedding)",
                f"training: {self.recipe.total_tokens:,} {counted} in {self.recipe.n_steps:,} steps; a step of the "
                f"last stage is {last.batch_size} {rows} in "
                f"{passes} pass{'es' if passes > 1 else ''} of up to {self.rows_of_a_pass}",
                f"memory: {memory / _GIB:.2f} GiB, {self.state_bytes / _GIB:.2f} of it weights, gradients and "
                f"moments, and {self.activation_bytes / _GIB:.2f} activations and logits{peak}",
                f"speed: {self.tokens_per_second:,.0f} {counted} a second, measured on {_TIMED_PASSES} passes of "
                f"{several(self.rows_measured, 'row')}: {self.pass_seconds:.3f} s each, and "
                f"{self.optimiser_seconds:.3f} s for "
                f"{_OPTIMISERS[self.recipe.optimiser]}",
                f"time: {self.seconds / 86_400:.3g} days ({self.seconds / 3600:,.3g} hours) on this device, without "
                "evaluation and saving",
            ]
        )


def dry_run(recipe: Recipe, *, device: str = "auto") -> DryRun:
    """Count and measure what `recipe` would take on `device`; nothing is read and nothing written.

    The vocabulary has the recipe's d_vocab. Takes some tens of seconds for a model of 100M parameters on a CPU, and
    its memory. Raises `ValueError` if the device does not exist, and for a model whose weights, gradients and moments
    alone have no room in the device's memory.
    """
    target = resolve_device(device)
    torch.manual_seed(recipe.seed)
    cfg = OBJECTIVES[recipe.objective].model_config(recipe)
    _check_room(recipe, count_parameters(cfg), target)
    model = AttentionOnlyTransformer(cfg).to(target)
    model.recompute_activations = recipe.recompute_activations
    optimiser = make_optimiser(model, recipe)
    stage = recipe.stages[-1]
    rows_of_a_pass = min(recipe.rows_at_once or stage.batch_size, stage.batch_size)
    if target.type == "cuda":
        torch.cuda.reset_peak_memory_stats(target)
    rows = 1
    activation_bytes, seconds = _first_pass(model, recipe, stage, rows)
    while rows < rows_of_a_pass and seconds < _SHORT_PASS:
        rows = min(2 * rows, rows_of_a_pass)
        activation_bytes, seconds = _first_pass(model, recipe, stage, rows)
    passes = [_seconds(lambda: _pass(model, recipe, rows), target) for _ in range(_TIMED_PASSES)]
    for _ in range(2):  # the first makes the moments
        _pass(model, recipe, rows)
        optimiser_seconds = _seconds(lambda: update_weights(model, optimiser, recipe), target)
    return DryRun(
        recipe=recipe,
        device=describe(target),
        parameters=count_parameters(model),
        table_4_parameters=count_parameters(model, "table_4"),
        rows_measured=rows,
        rows_of_a_pass=rows_of_a_pass,
        state_bytes=_state_bytes(recipe, count_parameters(model)),
        activation_bytes=activation_bytes * rows_of_a_pass // rows,
        peak_bytes=torch.cuda.max_memory_allocated(target) if target.type == "cuda" else None,
        pass_seconds=sorted(passes)[_TIMED_PASSES // 2],
        optimiser_seconds=optimiser_seconds,
    )


def _state_bytes(recipe: Recipe, parameters: int) -> int:
    """Weights, gradients and the optimiser's moments, in float32."""
    return (2 + _MOMENTS[recipe.optimiser]) * 4 * parameters


def _check_room(recipe: Recipe, parameters: int, device: torch.device) -> None:
    """Raise `ValueError`, before anything is allocated, where the state is larger than the device's memory."""
    state, memory = _state_bytes(recipe, parameters), memory_bytes(device)
    if memory is not None and state > memory:
        raise ValueError(
            f"{recipe.name}: {parameters:,} parameters take {state / _GIB:,.1f} GiB for weights, gradients and moments "
            f"alone, and {describe(device)} has {memory / _GIB:,.1f} GiB. Try it on a larger machine, or take fewer "
            "layers, heads or tokens of vocabulary."
        )


def _first_pass(model: AttentionOnlyTransformer, recipe: Recipe, stage: Stage, rows: int) -> tuple[int, float]:
    """Bytes kept for the backward pass, weights not counted, and the seconds of a pass after one to warm up."""
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    bytes_by_address: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            bytes_by_address[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        _pass(model, recipe, rows)
    total = sum(bytes_by_address.values())
    if model.recompute_activations:  # each block's input waits outside of the graph
        length = model.cfg.n_ctx if recipe.counted != "tokens" else stage.sequence_length
        total += model.cfg.n_layers * rows * length * model.cfg.d_model * 4
    return total, _seconds(lambda: _pass(model, recipe, rows), model.device)


def _pass(model: AttentionOnlyTransformer, recipe: Recipe, n_rows: int) -> None:
    rows, targets = OBJECTIVES[recipe.objective].random_batch(recipe, n_rows)
    add_gradients(model, rows.to(model.device), None if targets is None else targets.to(model.device), recipe)


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    """Wall time of a call, to the end of what it started on a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started
