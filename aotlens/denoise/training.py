"""Training one-layer denoisers from random weights, many runs at once (*in-context-denoising* §3, Figures 3, 4, 7, 8).

Runs (seeds) of one task are one batched problem: Adam acts on each number by itself and the summed loss has each
run's own gradient, so that the batch gives what one run after another gives. Linear attention needs of a context only
its second moment, `n × n` numbers instead of `L × n`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from aotlens.conventions import Progress, require_between, require_choice, require_seed
from aotlens.denoise.one_layer import attend, attend_linear, second_moment
from aotlens.denoise.tasks import Prompts, Task
from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd

Schedule = Literal["constant", "cosine"]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """The settings of a layer's training; the defaults are the paper's (Figure 3), but for the learning rate, which it
    does not give."""

    n_prompts: int = 800
    batch_size: int = 80
    n_context: int = 499
    """L: the paper's "L = 500" counts the query."""
    n_epochs: int = 150
    learning_rate: float = 0.01
    """Adam's, and ours: the paper gives none."""
    schedule: Schedule = "constant"
    """`"cosine"`: the rate rises in a line over the first twentieth of the steps, then falls to 0 as a cosine does."""
    n_test_prompts: int = 800
    shared_prompts: bool = False
    """Whether all runs are trained on the prompts and batches of the first seed, and differ in their initial weights
    only: for softmax attention some three times faster, since all runs read one context."""

    def __post_init__(self) -> None:
        for name in ("n_prompts", "batch_size", "n_context", "n_epochs", "n_test_prompts"):
            require_between(name, getattr(self, name), 1)
        if self.n_prompts % self.batch_size:
            raise ValueError(f"n_prompts={self.n_prompts}: expected a multiple of batch_size={self.batch_size}.")
        require_between("learning_rate", self.learning_rate, above=0)
        require_choice("schedule", self.schedule, get_args(Schedule))

    @property
    def n_steps(self) -> int:
        """Steps of Adam, over all epochs."""
        return self.n_epochs * (self.n_prompts // self.batch_size)

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step, the first of which is 0."""
        if self.schedule == "constant":
            return self.learning_rate
        warm_up = max(self.n_steps // 20, 1)
        if step < warm_up:
            return self.learning_rate * (step + 1) / warm_up
        return self.learning_rate * (1 + math.cos(math.pi * (step - warm_up) / (self.n_steps - warm_up))) / 2


@dataclass(frozen=True, kw_only=True)
class TrainedLayers(Result):
    """Layers trained on one task, a run for each seed."""

    task: Task
    kind: str
    settings: TrainingSettings
    seeds: tuple[int, ...]
    W_QK: Float[Tensor, "run n n"]
    W_OV: Float[Tensor, "run n n"]
    train_loss: Float[Tensor, "run epoch"]
    """Squared error a training prompt, summed over n, the mean over the epoch's batches as they were trained on."""
    test_loss: Float[Tensor, "run measured"]
    """Squared error a prompt on prompts kept apart, summed over n, after each epoch; entry 0 is before training, so
    there is one more."""
    transform: Float[Tensor, "n n"] | None = None
    """A of Appendix H, where context and query were transformed."""

    @property
    def headline(self) -> str:
        return f"mean test loss {float(self.test_loss[:, -1].mean()):.3g}, {int(self.stuck.sum())} stuck"

    @property
    def plain(self) -> tuple[Float[Tensor, "run n n"], Float[Tensor, "run n n"]]:
        """W_QK and W_OV as they act on prompts before the transform: Aᵀ W_QK A and Aᵀ W_OV, or themselves without one.

        Where a layer undoes A, W_PV = α A⁻¹ and W_KQ = β (A Aᵀ)⁻¹ (A.12), both are scaled identities.
        """
        if self.transform is None:
            return self.W_QK, self.W_OV
        A = self.transform.to(self.W_QK)
        return A.T @ self.W_QK @ A, A.T @ self.W_OV

    @property
    def alpha(self) -> Float[Tensor, " run"]:
        """The mean diagonal of W_OV (the paper's ⟨w_PV⟩), before a transform as `plain`."""
        return self.plain[1].diagonal(dim1=1, dim2=2).mean(1)

    @property
    def beta(self) -> Float[Tensor, " run"]:
        """The mean diagonal of W_QK (the paper's ⟨w_KQ⟩), before a transform as `plain`."""
        return self.plain[0].diagonal(dim1=1, dim2=2).mean(1)

    @property
    def off_diagonal(self) -> Float[Tensor, "run matrix"]:
        """‖W − diag W‖_F ÷ ‖diag W‖_F of W_QK and W_OV, before a transform as `plain`: 0 for a diagonal matrix."""
        ratios = []
        for weights in self.plain:
            diagonal = weights.diagonal(dim1=1, dim2=2)
            rest = weights - torch.diag_embed(diagonal)
            ratios.append(rest.flatten(1).norm(dim=1) / diagonal.norm(dim=1))
        return torch.stack(ratios, dim=1)

    @property
    def stuck(self) -> Bool[Tensor, " run"]:
        """Runs whose matrices' diagonals have both signs: some directions were inverted and did not come back.

        A sign may flip as a whole (α and β both negative are the same layer for linear attention), so that each
        diagonal is compared with itself. With a transform these are `plain`'s.
        """
        signs = [weights.diagonal(dim1=1, dim2=2).sign() for weights in self.plain]
        mixed = [(sign != sign[:, :1]).any(1) for sign in signs]
        return mixed[0] | mixed[1]

    def loss_frame(self) -> pd.DataFrame:
        """Return one row per epoch: the training loss (from 1 on) and the test loss of each run."""
        frame = data_frame({"epoch": range(self.test_loss.shape[1])})
        for place, seed in enumerate(self.seeds):
            frame[f"train_loss_seed_{seed}"] = [None, *self.train_loss[place].tolist()]
            frame[f"test_loss_seed_{seed}"] = self.test_loss[place].tolist()
        return frame

    def to_frame(self) -> pd.DataFrame:
        """Return one row per run: seed, α, β, their product, off-diagonal shares, losses, and whether it is stuck."""
        off = self.off_diagonal
        return data_frame(
            {
                "seed": list(self.seeds),
                "alpha": self.alpha.tolist(),
                "beta": self.beta.tolist(),
                "product": (self.alpha * self.beta).tolist(),
                "off_diagonal_QK": off[:, 0].tolist(),
                "off_diagonal_OV": off[:, 1].tolist(),
                "train_loss": self.train_loss[:, -1].tolist(),
                "test_loss": self.test_loss[:, -1].tolist(),
                "stuck": self.stuck.tolist(),
            }
        )


def train_layers(
    task: Task,
    kind: str,
    settings: TrainingSettings | None = None,
    *,
    seeds: Sequence[int] = tuple(range(6)),
    transform: Float[Tensor, "n n"] | None = None,
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
) -> TrainedLayers:
    """Train one layer for each seed by Adam on the squared error, from weights uniform in ±1/√n, all runs together.

    A seed draws its run's prompts, initial weights and batches; all are tested on the same prompts. `transform` is A of
    Appendix H. `progress(done, total)` counts epochs, and may raise to stop.

    Time: linear O(runs · epochs · prompts · n²), after one pass over the contexts; softmax O(… · L · n). Memory: the
    prompts of all runs, runs · prompts · L · n numbers for softmax (shared: one run's).

    Raises `ValueError` for no seeds, and where the loss ceases to be finite.
    """
    settings = settings or TrainingSettings()
    if not len(seeds):
        raise ValueError("train_layers: expected at least one seed.")
    test = sample_test_prompts(task, settings, seeds, transform=transform, dtype=dtype)
    drawn = (
        task.sample(settings.n_prompts, settings.n_context, 2 * seed, transform=transform, dtype=dtype)
        for seed in (seeds[:1] if settings.shared_prompts else seeds)
    )
    trained = train_on(drawn, test, task, kind, settings, seeds=seeds, progress=progress)
    return replace(trained, transform=transform)


def train_on(
    prompts: Iterable[Prompts],
    test: Prompts,
    task: Task,
    kind: str,
    settings: TrainingSettings,
    *,
    seeds: Sequence[int],
    progress: Progress | None = None,
) -> TrainedLayers:
    """Run `train_layers` on prompts that are drawn already: those of each seed, or one for all where they are
    shared."""

    def prepare(prompts: Prompts) -> _Data:
        context = second_moment(prompts.context) if kind == "linear" else prompts.context
        return _Data(context[None], prompts.query[None], prompts.target[None])

    data = _Data(*map(torch.cat, zip(*map(prepare, prompts), strict=True)))
    measured, dtype = prepare(test), test.query.dtype
    generators = [torch.Generator().manual_seed(require_seed(seed)) for seed in seeds]
    bound = task.n**-0.5
    drawn = torch.stack([torch.rand(2, task.n, task.n, generator=g, dtype=dtype) for g in generators], dim=1)
    weights = ((2 * drawn - 1) * bound).requires_grad_()  # [QK or OV, run, n, n]
    optimizer = torch.optim.Adam([weights], lr=settings.learning_rate, fused=True)
    batches_of = generators[: len(data.query)]
    n_batches = settings.n_prompts // settings.batch_size
    train_losses, test_losses = [], [_losses(measured, weights[0].detach(), weights[1].detach(), kind)]
    for epoch in range(settings.n_epochs):
        orders = torch.stack([torch.randperm(settings.n_prompts, generator=g) for g in batches_of])
        epoch_loss = torch.zeros(len(seeds), dtype=dtype)
        for batch, rows in enumerate(orders.split(settings.batch_size, dim=1)):
            losses = _batch_losses(data, rows, weights[0], weights[1], kind)
            optimizer.zero_grad()
            losses.sum().backward()
            optimizer.param_groups[0]["lr"] = settings.rate_at(epoch * n_batches + batch)
            optimizer.step()
            epoch_loss += losses.detach() / n_batches
        if not epoch_loss.isfinite().all():
            raise ValueError(
                f"epoch {epoch}: the loss is not finite; take a learning rate below {settings.learning_rate}."
            )
        train_losses.append(epoch_loss)
        test_losses.append(_losses(measured, weights[0].detach(), weights[1].detach(), kind))
        if progress is not None:
            progress(epoch + 1, settings.n_epochs)
    W_QK, W_OV = weights.detach()
    return TrainedLayers(
        task=task,
        kind=kind,
        settings=settings,
        seeds=tuple(seeds),
        W_QK=W_QK,
        W_OV=W_OV,
        train_loss=torch.stack(train_losses, dim=1),
        test_loss=torch.stack(test_losses, dim=1),
        transform=test.transform,
    )


def sample_test_prompts(
    task: Task,
    settings: TrainingSettings,
    seeds: Sequence[int],
    *,
    transform: Float[Tensor, "n n"] | None = None,
    dtype: torch.dtype = torch.float64,
) -> Prompts:
    """Return the prompts that `train_layers` tests all runs on: no seed of a training draws them."""
    seed = 2 * seeds[0] + 1
    return task.sample(settings.n_test_prompts, settings.n_context, seed, transform=transform, dtype=dtype)


class _Data(NamedTuple):
    """Prompts as they are trained on, `[run or 1, prompt, …]` each."""

    context: Tensor
    """The second moment `[…, n, n]` for linear attention, else the tokens `[…, context, n]`."""
    query: Tensor
    target: Tensor


def _batch_losses(data: _Data, rows: Tensor, W_QK: Tensor, W_OV: Tensor, kind: str) -> Tensor:
    """`_losses` on the prompts `rows`, `[run or 1, prompt]`.

    The contexts of one batch of one run fit into a processor's cache and those of all runs do not, so that softmax
    attention on prompts of its own goes through the runs one by one.
    """
    runs = range(len(rows))
    if kind == "linear" or len(runs) == 1:
        return _losses(_Data(*(part[torch.arange(len(runs))[:, None], rows] for part in data)), W_QK, W_OV, kind)
    own = ((_Data(*(part[r : r + 1, rows[r]] for part in data)), slice(r, r + 1)) for r in runs)
    return torch.cat([_losses(batch, W_QK[r], W_OV[r], kind) for batch, r in own])


def _losses(data: _Data, W_QK: Tensor, W_OV: Tensor, kind: str) -> Tensor:
    """Each run's mean squared error a prompt, summed over n: `[run]`."""
    if kind == "linear":
        estimate = attend_linear(data.context, data.query, W_QK[:, None], W_OV[:, None])
    else:
        estimate = attend(data.context, data.query, W_QK[:, None], W_OV[:, None], kind)
    return (estimate - data.target).pow(2).sum(-1).mean(-1)
