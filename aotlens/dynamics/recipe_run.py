"""A training run that can be made again: its recipe, its data, and so every batch of it."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from aotlens.checkpoints import CheckpointInfo, Run, find_checkpoint, load_run
from aotlens.checkpoints.snapshots import snapshot_steps
from aotlens.conventions import require_whole
from aotlens.models import AttentionOnlyTransformer
from aotlens.train import OBJECTIVES, Recipe, TrainingData
from aotlens.train.loop import update_weights
from aotlens.train.objectives import Objective, language
from aotlens.train.optimiser import learning_rate, make_optimiser


@dataclass(frozen=True, kw_only=True, eq=False)
class RecipeRun:
    """A run of next tokens with AdamW in one process, without autocast: batches, rates and initial weights by step.

    A *window* is a row of a batch; windows are counted through all steps. Make it with `recipe_run`.
    """

    objective: language.NextToken
    weights_sha256: str | None = None
    """The hash of the weights that the run ended with, where a checkpoint says it."""
    snapshots: Run | None = None
    """The snapshots of the run, where there are some: what a replay is compared with."""

    @property
    def recipe(self) -> Recipe:
        return self.objective.recipe

    @property
    def n_steps(self) -> int:
        return self.recipe.n_steps

    @property
    def sizes(self) -> Int64[np.ndarray, " step"]:
        """Windows of each step."""
        return np.repeat([stage.batch_size for stage in self.recipe.stages], [s.n_steps for s in self.recipe.stages])

    def windows(self, step: int) -> slice:
        """Return the places of a step's windows among all."""
        end = int(self.sizes[: step + 1].sum())
        return slice(end - int(self.sizes[step]), end)

    def stage(self, step: int) -> tuple[int, int]:
        """Return the stage of a step, and the step within it. Raises `ValueError` for a step that the run does not
        have."""
        within = step
        for number, stage in enumerate(self.recipe.stages):
            if 0 <= within < stage.n_steps:
                return number, within
            within -= stage.n_steps
        raise ValueError(f"step {step}: expected one from 0 to {self.n_steps - 1}.")

    def rows(self, step: int) -> Int64[Tensor, "batch pos"]:
        """Return the tokens of a step's windows."""
        return self.objective.batch(*self.stage(step))[0]

    def offsets(self, step: int) -> Int64[np.ndarray, " batch"]:
        """Return the offset of each window's text in the training tokens; −1 for one of random tokens."""
        return self.objective.offsets(*self.stage(step))

    def rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        stage, within = self.stage(step)
        return learning_rate(self.recipe.stages[stage], within)

    def model(self, dtype: torch.dtype = torch.float32) -> AttentionOnlyTransformer:
        """Return the model with its initial weights, the caller's own."""
        return copy.deepcopy(self._initial).to(dtype)

    @functools.cached_property
    def _initial(self) -> AttentionOnlyTransformer:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.recipe.seed)
            return self.objective.make_model()

    def loss(self, model: AttentionOnlyTransformer, rows: Int64[Tensor, "batch pos"]) -> Float[Tensor, ""]:
        """Return the mean loss of the next tokens, as fast as there is."""
        loss: Tensor = model(rows, return_type="loss", label_smoothing=float(self.recipe.label_smoothing))
        return loss

    def losses(
        self,
        model: AttentionOnlyTransformer,
        rows: Int64[Tensor, "batch pos"],
        weights: dict[str, Tensor] | None = None,
    ) -> Float[Tensor, "batch predicted"]:
        """Return the loss of each next token, as training takes it; `weights` replace the model's.

        Twice differentiable, and by forward mode, inside `differentiable_twice()`."""
        options = {"return_type": "loss", "loss_per_token": True, "label_smoothing": float(self.recipe.label_smoothing)}
        losses: Tensor = torch.func.functional_call(model, weights or {}, (rows,), options)
        return losses

    def train(
        self,
        weights: Float64[np.ndarray, " window"] | None = None,
        order: Int64[np.ndarray, " window"] | None = None,
        *,
        steps: int | None = None,
        eps_root: float = 0.0,
        dtype: torch.dtype = torch.float32,
        at: Callable[[int, AttentionOnlyTransformer], None] | None = None,
    ) -> AttentionOnlyTransformer:
        """Train again from the start for `steps` steps (all), a window's loss counting by its weight:

            loss of a step = Σ w_i ℓ_i ÷ Σ w_i    over its tokens, w_i that of their window

        by PyTorch's own AdamW, with `eps_root` inside its root. `order` says which window stands at each place of the
        run, so that windows come earlier, later or again. `at(step, model)` is called before each step, and after the
        last.

        Raises `ValueError` for weights or an order of another number, for windows that do not exist or have another
        length than those of their step, and for a step whose windows weigh 0 or less together.
        """
        n_steps = self.n_steps if steps is None else require_whole("steps", steps, 1, self.n_steps)
        self._require_windows(weights, order, n_steps)
        model = self.model(dtype)
        optimiser = make_optimiser(model, self.recipe)
        if eps_root:
            _add_inside_root(optimiser, eps_root)
        for step in range(n_steps):
            if at is not None:
                at(step, model)
            for group in optimiser.param_groups:
                group["lr"] = self.rate(step)
            losses = self.losses(model, self.rows(step) if order is None else self._rows_of(order[self.windows(step)]))
            if weights is None:
                loss = losses.mean()
            else:
                places = self.windows(step) if order is None else order[self.windows(step)]
                own = torch.as_tensor(weights[places], dtype=dtype)
                if not float(own.sum()) > 0:
                    raise ValueError(f"step {step}: expected windows that weigh more than 0 together.")
                loss = (own[:, None] * losses).sum() / (own.sum() * losses.shape[1])
            loss.backward()  # type: ignore[no-untyped-call]
            update_weights(model, optimiser, self.recipe)
        if at is not None:
            at(n_steps, model)
        return model.requires_grad_(False)

    def _require_windows(
        self, weights: Float64[np.ndarray, " window"] | None, order: Int64[np.ndarray, " window"] | None, n_steps: int
    ) -> None:
        n_windows = int(self.sizes[:n_steps].sum())
        for name, values in (("weights", weights), ("order", order)):
            if values is not None and len(values) < n_windows:
                raise ValueError(f"{name}: expected one for each of {n_windows} windows, got {len(values)}.")
        if weights is not None and not np.isfinite(weights).all():
            raise ValueError("weights: expected numbers, got some that are not finite.")
        most = int(self.sizes.sum()) - 1
        if order is not None and not ((order >= 0) & (order <= most)).all():
            raise ValueError(f"order: expected windows from 0 to {most}, got {order.min()} to {order.max()}.")
        if weights is not None and order is not None and order.max() >= len(weights):
            raise ValueError(f"weights: expected one for each window of the order, to {order.max()}.")

    def _rows_of(self, windows: Int64[np.ndarray, " batch"]) -> Int64[Tensor, "batch pos"]:
        """The tokens of some windows of any steps."""
        ends = self.sizes.cumsum()
        steps = np.searchsorted(ends, windows, side="right")
        rows = [self.rows(int(step))[int(window - self.windows(int(step)).start)]
                for step, window in zip(steps, windows, strict=True)]  # fmt: skip
        if len({len(row) for row in rows}) > 1:
            raise ValueError("order: expected windows of one length in a step, got several.")
        return torch.stack(rows)

    def documents(self, offsets: Int64[np.ndarray, " window"]) -> Int64[np.ndarray, " window"]:
        """Return the number of the document in which each window's text begins; −1 for random tokens."""
        starts = self.objective.data.train.document_starts - 1  # the separator belongs to what follows it
        return np.where(offsets < 0, -1, np.searchsorted(starts, offsets, side="right") - 1)

    @property
    def identity(self) -> dict[str, Any]:
        """The properties that two runs share whose steps are the same."""
        return {**self.recipe.to_dict(), **self.objective.identity()}

    def hash(self, n_steps: int) -> str:
        """Hash all that determines the first steps of the run, but for its words about itself."""
        fields = {name: value for name, value in self.identity.items() if name not in ("name", "description")}
        digest: str = joblib.hash({**fields, "steps": n_steps})
        return digest


def require_eps_root(eps_root: float) -> float:
    """Raise `ValueError` unless it is a number from 0 to 1."""
    if not 0 <= eps_root < 1:
        raise ValueError(f"eps_root={eps_root}: expected from 0 to 1.")
    return eps_root


def differentiable_twice() -> AbstractContextManager[None]:
    """Attend by plain products: PyTorch's fused kernels have one derivative. It is the process's, not a thread's."""
    return sdpa_kernel(SDPBackend.MATH)


def recipe_run(
    run: Run | RecipeRun | CheckpointInfo | str | Path | tuple[Recipe, TrainingData],
    corpus: str | None = None,
) -> RecipeRun:
    """Return the run that trained a checkpoint (its name, folder, or `Run`), by the recipe of its card and the text
    `corpus`; or a recipe and what its objective's `prepare` gave.

    Raises `ValueError` for a checkpoint of another program or without a recipe, for a corpus that is not the one that
    it was trained on, for training that this does not follow (another objective or optimiser, autocast, a GPU, several
    processes), and for a checkpoint whose training was not finished.
    """
    if isinstance(run, RecipeRun):
        return run
    if isinstance(run, tuple):
        recipe, data = run
        _require_followed(recipe)
        return RecipeRun(objective=_next_token(recipe, data))
    if isinstance(run, Run) and run.is_external:
        raise ValueError(
            f"{run.name}: another program trained it, and its batches are not known; train it by a recipe."
        )
    info = run if isinstance(run, CheckpointInfo) else find_checkpoint(run.folder if isinstance(run, Run) else run)
    if info.problem is not None:
        raise ValueError(info.problem)
    if not info.recipe:
        raise ValueError(f"{info.name}: its card has no recipe, so that its batches are not known.")
    recipe = Recipe.from_dict(info.recipe, where=f"{info.name}'s recipe")
    _require_followed(recipe)
    if info.device not in ("", "CPU"):
        raise ValueError(f"{info.name}: was trained on {info.device}; training is followed that one process did on a "
                         "CPU: a GPU's is in bfloat16, and processes sum in an order of their own.")  # fmt: skip
    if info.tokens_seen not in (0, recipe.total_tokens):
        raise ValueError(f"{info.name}: has seen {info.tokens_seen:,} tokens of its recipe's {recipe.total_tokens:,}; "
                         "finish its training with --resume.")  # fmt: skip
    data = OBJECTIVES[recipe.objective].prepare(recipe, corpus)
    known = info.corpus.get("sha256")
    if known is not None and known != data.sha256:
        raise ValueError(
            f"{info.name}: was trained on another corpus (sha256 {str(known)[:12]}…, not {data.sha256[:12]}…): "
            "give the text that its card names."
        )
    snapshots = load_run(info.path, "cpu") if info.path is not None and snapshot_steps(info.path) else None
    return RecipeRun(objective=_next_token(recipe, data), snapshots=snapshots, weights_sha256=info.weights_sha256)


def _add_inside_root(optimiser: torch.optim.Optimizer, eps_root: float) -> None:
    """AdamW's √v̂ becomes √(v̂ + ε_root): ε_root is added to each squared gradient, whose weights Σ (1 − β₂) β₂ᵏ are the
    1 − β₂ᵗ that v̂ divides by."""

    def add(*_: Any) -> None:
        for group in optimiser.param_groups:
            beta = group["betas"][1]
            for parameter in group["params"]:
                if not optimiser.state[parameter]:
                    moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
                    optimiser.state[parameter] = {"step": torch.tensor(0.0), **moments}
                optimiser.state[parameter]["exp_avg_sq"].add_(eps_root * (1 - beta) / beta)

    optimiser.register_step_pre_hook(add)


def _next_token(recipe: Recipe, data: TrainingData) -> language.NextToken:
    objective: Objective[Any] = OBJECTIVES[recipe.objective](recipe, data)
    assert isinstance(objective, language.NextToken)
    return objective


def _require_followed(recipe: Recipe) -> None:
    refused = {
        f"objective = {recipe.objective!r}": recipe.objective != "next_token",
        f"optimiser = {recipe.optimiser!r}, whose steps are signs": recipe.optimiser != "adamw",
        "bfloat16 autocast": recipe.cpu_autocast,
        f"betas = {list(recipe.betas)}, which keep no squares of earlier gradients": recipe.betas[1] <= 0,
    }
    if reasons := [what for what, here in refused.items() if here]:
        raise ValueError(f"recipe {recipe.name!r}: training is followed for next tokens by AdamW without autocast, not "
                         f"with {', '.join(reasons)}.")  # fmt: skip
