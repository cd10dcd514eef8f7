"""Training all FFNs on streamed activations: settings, the order of pieces, evaluations, stopping, resuming.

Text comes in pieces that fit the buffer. Piece k is a function of (windows, seed, k), so a killed run that has saved
its weights after piece k goes on with piece k + 1 and ends with the same weights.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int64
from torch import Tensor

from aotlens.conventions import require_between, require_choice
from aotlens.data.windows import spread
from aotlens.distill.heads.batch import FFNBatch, Problem, start_batch
from aotlens.distill.heads.scaling import Moments, Scaling, as_network, fit_scaling
from aotlens.distill.heads.stream import Piece, Source, order_of_tokens, windows_of_piece
from aotlens.files import load_progress, save_progress

_FIRST = 4096  # tokens that initial output weights are fitted to


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Validation Σ‖t − t̂‖² of every problem after some tokens, batch by batch; a stopped one keeps its last."""

    tokens: int
    seconds: float
    """Since training began, evaluations and reading the model included; runs that were resumed add up."""
    squared_errors: list[list[float]]


@dataclass(kw_only=True, eq=False)
class Training:
    """The state of a run between two pieces."""

    source: Source
    settings: Settings
    windows: Int64[Tensor, "train pos"]
    validation_windows: Int64[Tensor, "validation pos"]
    scaling: Scaling
    moments: Moments
    batches: list[FFNBatch]
    validation: Piece
    pieces_done: int = 0
    seconds: float = 0.0
    curve: list[Evaluation] = field(default_factory=list)

    @property
    def windows_per_piece(self) -> int:
        return _windows_per_piece(self.source, self.settings, self.windows.shape[1])

    @property
    def steps_per_piece(self) -> int:
        return self.windows_per_piece * self.windows.shape[1] // self.settings.batch_size

    @property
    def n_pieces(self) -> int:
        return max(1, round(self.settings.train_tokens / (self.steps_per_piece * self.settings.batch_size)))

    @property
    def tokens_done(self) -> int:
        return self.pieces_done * self.steps_per_piece * self.settings.batch_size

    @property
    def done(self) -> bool:
        return self.pieces_done >= self.n_pieces

    @torch.no_grad()
    def train_piece(self) -> None:
        """Take one piece of text through the model, the moments and every FFN; an evaluation where one is due."""
        began = time.perf_counter()
        piece, n_new = self._next_piece()
        if n_new:
            new = slice(None) if n_new == self.windows_per_piece else self._new_tokens(n_new)
            self.moments.add(piece.x[:, :, new], piece.t[:, :, new], piece.positions[new])
        size, steps = self.settings.batch_size, self.n_pieces * self.steps_per_piece
        for step in range(self.steps_per_piece):
            factor = self.settings.factor(self.pieces_done * self.steps_per_piece + step, steps)
            columns = slice(step * size, (step + 1) * size)
            x, t = piece.x[:, :, columns], piece.t[:, :, columns]
            for batch in self.batches:
                if batch.active:
                    batch.step(x, t, factor)
        self.pieces_done += 1
        every = self.n_pieces / self.settings.evaluations
        due = self.done or int(self.pieces_done / every) > int((self.pieces_done - 1) / every)
        if due:
            self._evaluate(began)
        self.seconds += time.perf_counter() - began

    def _next_piece(self) -> tuple[Piece, int]:
        seed, number = self.settings.text_seed, self.pieces_done
        windows, n_new = windows_of_piece(self.windows, self.windows_per_piece, seed, number)
        return self.source.piece(windows, self.scaling, self._order()), n_new

    def _order(self) -> Int64[Tensor, " tokens"]:
        n_tokens = self.windows_per_piece * self.windows.shape[1]
        return order_of_tokens(n_tokens, self.settings.text_seed, self.pieces_done)

    def _new_tokens(self, n_new: int) -> Tensor:
        """Return the mask of the columns that are of the first `n_new` windows of the piece."""
        return (self._order() < n_new * self.windows.shape[1]).to(self.source.reader.device)

    def _evaluate(self, began: float) -> None:
        by_batch: list[list[float]] = []
        for batch in self.batches:
            # Numbers of the last evaluation stand for who no longer trains.
            last = self.curve[-1].squared_errors[len(by_batch)] if self.curve else [0.0] * len(batch.problems)
            errors = list(last)
            if batch.active:
                total = batch.squared_errors(self.validation.x, self.validation.t).double().sum(1).cpu()
                for row, index in enumerate(batch.active):
                    if not batch.stopped_at[index]:
                        errors[index] = float(total[row])
                batch.note(total, self.tokens_done, self.settings.tolerance, self.settings.patience)
            by_batch.append(errors)
        seconds = self.seconds + time.perf_counter() - began
        self.curve.append(Evaluation(tokens=self.tokens_done, seconds=seconds, squared_errors=by_batch))

    def finish(self) -> None:
        """Give every FFN its best weights, ready to be judged; where the best map of rank `width` does better on
        validation text, that map as a network of the same width."""
        began = time.perf_counter()
        for batch in self.batches:
            batch.restore_best()
        if not self.batches:
            return
        linear, piece = self.moments.linear(), self.validation
        errors = [row[:] for row in self.curve[-1].squared_errors]
        better = 0
        for number, batch in enumerate(self.batches):
            W1, W2 = as_network(self.moments, linear, batch.width, piece.x)
            for row in batch.offer(W1, W2, piece.x, piece.t):
                errors[number][row] = float(batch.best[row])
                better += 1
        self.seconds += time.perf_counter() - began
        if better:
            self.curve.append(Evaluation(tokens=self.tokens_done, seconds=self.seconds, squared_errors=errors))


def _windows_per_piece(source: Source, settings: Settings, length: int) -> int:
    """Count the windows that half the buffer holds, or those of a share of the text for the number of evaluations."""
    fits = settings.buffer_bytes // 2 // source.bytes_per_token()
    least = -(-settings.batch_size // length) * length
    if fits < least:
        needed = 2 * source.bytes_per_token() * least
        raise ValueError(
            f"buffer_bytes={settings.buffer_bytes:,}: a window of {length} tokens and a batch of {settings.batch_size} "
            f"need {needed:,} with this model; give more, or a smaller batch_size or sequence_length."
        )
    wanted = max(settings.train_tokens // settings.evaluations, settings.batch_size)
    return max(1, -(-min(fits // length * length, wanted) // length))


@torch.no_grad()
def start_training(
    source: Source,
    settings: Settings,
    windows: Int64[Tensor, "train pos"],
    validation_windows: Int64[Tensor, "validation pos"],
    saved: dict[str, Tensor] | None = None,
) -> Training:
    """Make scaling and initial weights from a first piece of text, or from what a run has saved."""
    length = windows.shape[1]
    fits = settings.buffer_bytes // 2 // source.bytes_per_token() // length  # half of that: a quarter of the buffer
    per_piece = _windows_per_piece(source, settings, length)
    if saved is None:
        first, _ = windows_of_piece(windows, per_piece, settings.text_seed, 0)
        raw = source.raw(first)
        scaling = fit_scaling(source.reader, source.heads, settings.target, [x for x, _ in raw], [z for _, z in raw])
        del raw
    else:
        names = ("x_mean", "whiten", "basis", "back", "t_mean", "scale", "warm")
        scaling = Scaling(**{name: saved[f"scaling.{name}"].to(source.reader.device) for name in names})
    places = list(source.layers.values())
    moments = Moments(places, source.reader.d_model + 1, scaling.basis.shape[2], length, source.reader.device)
    batches: list[FFNBatch] = []
    if settings.trained or settings.wide:
        start = source.piece(
            windows_of_piece(windows, per_piece, settings.text_seed, 0)[0][: _start_windows(length)], scaling
        )
        for width, seeds in _groups(settings):
            rate = settings.learning_rate / width**0.5
            problems = problems_of(source, seeds)
            batches.append(start_batch(width, problems, scaling, start.x, start.t, rate))
        del start
    return Training(
        source=source,
        settings=settings,
        windows=windows,
        validation_windows=validation_windows,
        scaling=scaling,
        moments=moments,
        batches=batches,
        validation=source.piece(validation_windows[spread(len(validation_windows), max(1, fits))], scaling),
    )


def _start_windows(length: int) -> int:
    return max(1, _FIRST // length)


def _groups(settings: Settings) -> list[tuple[int, range]]:
    """(width, seeds) of each batch; the wide one, which is for the floor, comes last."""
    seeds = range(settings.seed, settings.seed + settings.seeds)
    groups = [(width, seeds) for width in settings.trained]
    if settings.wide is not None:
        groups.append((settings.wide, seeds[:1]))
    return groups


def problems_of(source: Source, seeds: range) -> list[Problem]:
    """List the problems by layer, head and seed."""
    return [
        Problem(place=place, layer=layer, head=source.heads[place], seed=seed)
        for layer, places in enumerate(source.layers.values())
        for place in range(places.start, places.stop)
        for seed in seeds
    ]


def train(training: Training, after_piece: Callable[[Training], None]) -> None:
    """Train to the end, or until every FFN has stopped and the closed forms have seen all the text."""
    while not training.done:
        training.train_piece()
        after_piece(training)
    training.finish()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Checked when made; `ValueError` for what does not fit."""

    hidden: tuple[int, ...] = (16,)
    """Widths of the FFNs, increasing; 0 is the linear map, in closed form."""
    target: str = "result"
    """Reproduce the head's result y = z W_O, or its z."""
    seeds: int = 3
    """FFNs of each head and width: other initial weights, the same text."""
    train_tokens: int = 400_000
    """The largest number of tokens that every FFN is trained on."""
    validation_tokens: int = 8_192
    """The tokens from the training documents that are not trained on: for the learning curve, and when to stop."""
    held_out_tokens: int = 65_536
    """The tokens from other documents: for the errors that are reported."""
    wide: int | None = 256
    """Width of one more FFN a head, for the floor; None for none."""
    neighbours: int = 16_384
    """Training tokens among which nearest neighbours are looked for; 0 for none."""
    batch_size: int = 512
    """Tokens a step."""
    learning_rate: float = 0.12
    """The learning rate of Adam, ÷ √width; rises over 10 steps, then falls to 0 along a cosine."""
    tolerance: float = 0.0
    patience: int = 6
    """An FFN stops when this many evaluations have not lowered its best validation error by `tolerance` of it. As the
    learning rate falls to the end, a short patience would stop what has yet to settle."""
    evaluations: int = 20
    """The number of times, approximately, that the validation error is taken."""
    seed: int = 0
    """FFNs' initial weights have seeds `seed`, `seed + 1`, ..."""
    text_seed: int = 0
    """The seed of the order of the text, which is the same for all of them."""
    buffer_bytes: int = 2**30
    """The largest buffer for activations."""

    def __post_init__(self) -> None:
        if not self.hidden or any(isinstance(width, bool) or width < 0 for width in self.hidden):
            raise ValueError(f"hidden={self.hidden}: expected widths of 0 or more, at least one.")
        if tuple(sorted(set(self.hidden))) != self.hidden:
            raise ValueError(f"hidden={self.hidden}: expected increasing widths.")
        require_choice("target", self.target, ("result", "z"))
        for name in ("seeds", "batch_size", "patience", "evaluations", "validation_tokens", "held_out_tokens"):
            require_between(name, getattr(self, name), 1)
        if self.train_tokens < self.batch_size:
            raise ValueError(f"train_tokens={self.train_tokens}: expected at least a batch, {self.batch_size}.")
        if self.wide is not None:
            require_between("wide", self.wide, 1)
        for name in ("neighbours", "seed", "text_seed"):
            require_between(name, getattr(self, name), 0)
        require_between("learning_rate", self.learning_rate, above=0)
        require_between("tolerance", self.tolerance, 0, below=1)

    @property
    def trained(self) -> tuple[int, ...]:
        """The widths that need training."""
        return tuple(width for width in self.hidden if width)

    def factor(self, step: int, steps: int) -> float:
        """Return the learning rate of a step, as a part of its height."""
        return min(1.0, (step + 1) / 10) * 0.5 * (1 + math.cos(math.pi * step / steps))


def save_training(path: Path, training: Training, identity: dict[str, Any]) -> None:
    """Save a run. `identity` is what the run was started with: `load_training` refuses another."""
    tensors = {f"scaling.{name}": tensor for name, tensor in training.scaling.tensors().items()}
    tensors |= {f"moments.{name}": tensor for name, tensor in training.moments.tensors().items()}
    batches = []
    for number, batch in enumerate(training.batches):
        own = {"W1": batch.W1, "W2": batch.W2, "best_W1": batch.best_W1, "best_W2": batch.best_W2}
        for name, parameter in (("W1", batch.W1), ("W2", batch.W2)):
            state = batch.optimiser.state.get(parameter, {})
            own |= {f"{name}.{key}": torch.as_tensor(value) for key, value in state.items()}
        own |= {"best": batch.best, "waited": batch.waited, "stopped_at": batch.stopped_at}
        tensors |= {f"batch.{number}.{name}": tensor for name, tensor in own.items()}
        batches.append(batch.active)
    counters = {
        "pieces_done": training.pieces_done,
        "seconds": training.seconds,
        "active": batches,
        "curve": [[e.tokens, e.seconds, e.squared_errors] for e in training.curve],
    }
    save_progress(path, tensors, counters, identity)


def load_training(path: Path, identity: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the counters of a run.

    Raises `ValueError` for a damaged file, and for another run's, naming what differs.
    """
    return load_progress(path, identity, "the distillation", "go on with the same, or choose another checkpoint file.")


def restore(training: Training, tensors: dict[str, Tensor], counters: dict[str, Any]) -> None:
    """Put a fresh `training` where the saved one was."""
    device = training.source.reader.device
    training.moments.load({name: tensors[f"moments.{name}"].to(device) for name in training.moments.tensors()})
    for number, batch in enumerate(training.batches):
        own = {
            name.removeprefix(f"batch.{number}."): tensor
            for name, tensor in tensors.items()
            if name.startswith(f"batch.{number}.")
        }
        batch._place(list(counters["active"][number]), own["W1"].to(device), own["W2"].to(device))
        for name, parameter in (("W1", batch.W1), ("W2", batch.W2)):
            if f"{name}.exp_avg" in own:
                moments = {key: own[f"{name}.{key}"].to(device) for key in ("exp_avg", "exp_avg_sq")}
                batch.optimiser.state[parameter] = {"step": own[f"{name}.step"], **moments}
        batch.best_W1, batch.best_W2 = own["best_W1"].to(device), own["best_W2"].to(device)
        batch.best, batch.waited, batch.stopped_at = own["best"], own["waited"], own["stopped_at"]
    training.pieces_done, training.seconds = counters["pieces_done"], counters["seconds"]
    training.curve = [
        Evaluation(tokens=tokens, seconds=seconds, squared_errors=errors)
        for tokens, seconds, errors in counters["curve"]
    ]
