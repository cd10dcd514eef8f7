"""The derivative of a trained model with respect to the weight of every training window, through all of training.

A run is a function of its windows' weights: step t takes the gradient of Σ w_i ℓ_i ÷ Σ w_i over the tokens of its
batch, and AdamW (`aotlens.dynamics.adamw`) goes from state to state. For a measure M of the model at the end,

    influence of window i  =  dM / dw_i  at w = 1,    seed, order and all other windows held

is computed in reverse through every step. Let u = dM/dĝ be what the adjoint of the state gives for the step's gradient
ĝ = ∇ Σ w_j ℓ_j ÷ Σ w_j over its n tokens: then dM/dw_j = u · (∇ℓ_j − ĝ) ÷ n, and the adjoint of the weights takes on
∇²(Σ ℓ_j ÷ n) u. Both come from one second backward pass, for each measure. This is the quantity of MAGIC (Ilyas and
Engstrom 2025) with a loss that is normalised, so that the influences of a batch sum to 0: windows are compared with
those of its batch. Leaving window i out changes M by −dM/dw_i to first order; `check_influence` retrains, and says how
far that holds.

Training is replayed once with weights and moments in float64 and the model in `dtype`, and its state is kept on disk
every √T steps or so; then it runs backwards, each step undone from the state after it. A killed call goes on.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from aotlens.checkpoints import user_folder
from aotlens.conventions import Progress, require_whole
from aotlens.dynamics.adamw import AdamW, State
from aotlens.dynamics.influence_measures import Measure, as_measures
from aotlens.dynamics.influence_result import Influence, TrainingWindows
from aotlens.dynamics.recipe_run import RecipeRun, differentiable_twice, recipe_run, require_eps_root
from aotlens.files import load_progress, save_progress
from aotlens.models import AttentionOnlyTransformer
from aotlens.train.optimiser import make_optimiser
from aotlens.untrusted import boundary

#: Tokens whose second derivatives are taken at once: more take memory, fewer take time.
_TOKENS_AT_ONCE = 512


def influence(
    run: Any,
    measures: Mapping[str, Measure] | Sequence[str],
    *,
    corpus: str | None = None,
    steps: int | None = None,
    dtype: torch.dtype = torch.float32,
    eps_root: float = 1e-8,
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> Influence:
    """Compute dM/dw of every window of the first `steps` steps of a run (all), for several measures in one sweep.

    `run` is what `recipe_run` takes: a checkpoint that was trained here, with the `corpus` that its card names, or a
    recipe and its data. `measures` are names (`aotlens.dynamics.influence_measures`: "loss", "repeated_loss",
    "induction 1.0", "copying 1.0", "ov_norm 1.0", "k_composition 0.3 1.0") or functions of the model by name, each of
    which gives a differentiable number.

    `eps_root` stands inside AdamW's root, in the replay as in the derivative, so that it is the derivative of training
    with it. With 0 it is that of PyTorch's own, which on text does not help: the first gradients of a rare token's
    weights take steps by their sign alone, whose derivative is without bound where they happen to be near 0. 1e-8 takes
    gradients below 1e-4 for small. `Influence.values` says what it made of the run: compare it with the checkpoint's.

    On the CPU. States are kept in `folder` ($AOTLENS_HOME/influence) until the call is done. `progress(done, total)`
    counts steps of the replay, then those back. Time: a replay, and for each step some 1.5 + 3.5 · measures training
    steps. Memory: all activations of 512 tokens, or of one window that is longer, and of their two backward passes,
    attention patterns among them, and 8 · (9 + 4 · measures) bytes a parameter. Disk: 24 bytes a parameter for each of
    √steps states.

    Raises `ValueError` for training that is not followed (`recipe_run`), for batches of one window, for an unknown
    measure or one that is not a finite number or has no derivative, and for a derivative that is not finite, naming the
    step.
    """
    followed = recipe_run(run, corpus)
    n_steps = require_whole("steps", followed.n_steps if steps is None else steps, 1, followed.n_steps)
    if (followed.sizes[:n_steps] == 1).all():
        raise ValueError("expected a run with several windows in a step: the loss of a step is their mean, of which a "
                         "single one's weight changes nothing.")  # fmt: skip
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype={dtype}: expected torch.float32 or torch.float64.")
    place = user_folder("influence") if folder is None else Path(folder)
    sweep = _Sweep(followed, n_steps, dtype, require_eps_root(eps_root), place, progress)
    return sweep.run(as_measures(measures, followed))


class _Sweep:
    """One call: the model, its optimiser, and the files of the states."""

    def __init__(
        self,
        run: RecipeRun,
        n_steps: int,
        dtype: torch.dtype,
        eps_root: float,
        folder: Path,
        progress: Progress | None,
    ) -> None:
        self.source, self.n_steps, self.progress = run, n_steps, progress
        self.model = run.model(dtype)
        self.parameters = list(self.model.parameters())
        self.adamw = _adamw(self.model, run, eps_root)
        self.every = max(1, min(math.isqrt(n_steps), self.adamw.undoable))
        self.identity = {**run.identity, "steps": n_steps, "dtype": str(dtype), "eps_root": eps_root}
        self.folder = folder / joblib.hash(self.identity)[:16]

    def run(self, measures: Mapping[str, Measure]) -> Influence:
        """Run the whole sweep: replay training, then carry the measures' gradients back through its steps."""
        end = self._replay()
        replayed = self._difference()
        values, adjoint = self._at_the_end(measures, end.weights)
        # What was begun for a function of the user's own is not gone on with: its name does not say what it is.
        specs = [(name, getattr(measure, "spec", None)) for name, measure in measures.items()]
        resumes = all(spec is not None for _, spec in specs)
        named = {**self.identity, "measures": specs}
        folder = self.folder / joblib.hash(named)[:16]
        per_token: list[np.ndarray] = []
        undone, after = 0.0, end
        for start in reversed(range(0, self.n_steps, self.every)):
            stop, path = min(start + self.every, self.n_steps), folder / f"{start}.safetensors"
            if resumes and path.is_file():
                tensors, kept_so_far = load_progress(path, named, "the influence", "delete it.")
                with boundary(path, "the state of the influence", "Delete it."):
                    undone = float(kept_so_far["undone"])
                    adjoint = State(*(tensors[name] for name in State._fields))
                    own = tensors["per_token"].numpy()
            else:
                adjoint, before, own = self._back(range(start, stop), adjoint, after)
                undone = float(np.maximum(undone, _relative(before, self._state(start))))  # a NaN stays
                if resumes:
                    contiguous = {name: part.contiguous() for name, part in zip(State._fields, adjoint, strict=True)}
                    folder.mkdir(exist_ok=True)
                    save_progress(path, {**contiguous, "per_token": torch.from_numpy(own)}, {"undone": undone}, named)
            per_token.append(own)
            after = self._state(start)
            self._say(2 * self.n_steps - start)
        result = Influence(
            run=self.source.recipe.name,
            identity=self.source.hash(self.n_steps),
            weights_sha256=self.source.weights_sha256,
            measures=tuple(measures),
            values=values,
            windows=TrainingWindows.of(self.source, self.n_steps),
            per_token=np.concatenate(per_token[::-1], axis=1),
            undone=undone,
            replayed=replayed,
            eps_root=self.adamw.eps_root,
            dtype=str(self.model.dtype).removeprefix("torch."),
        )
        shutil.rmtree(self.folder, ignore_errors=True)
        return result

    def _replay(self) -> State:
        """The state after the last step; those of every so many steps are kept."""
        starts = [*range(0, self.n_steps, self.every), self.n_steps]
        last = next((step for step in reversed(starts) if self._path(step).is_file()), None)
        if last is None:
            weights = torch.cat([parameter.detach().flatten().double() for parameter in self.parameters])
            state, last = State(weights, torch.zeros_like(weights), torch.zeros_like(weights)), 0
            self._keep(0, state)
        else:
            state = self._state(last)
        for step in range(last, self.n_steps):
            self._set(state.weights)
            gradient = self._gradient(self.source.rows(step))
            state = self.adamw.step(state, gradient, step + 1, self.source.rate(step))
            if not state.weights.isfinite().all():
                raise ValueError(f"step {step}: the weights of the replay are not finite.")
            if (step + 1) % self.every == 0 or step + 1 == self.n_steps:
                self._keep(step + 1, state)
            self._say(step + 1)
        return state

    def _at_the_end(self, measures: Mapping[str, Measure], weights: Tensor) -> tuple[np.ndarray, State]:
        """The measures, and their derivatives with respect to the last state."""
        self._set(weights)
        values, rows = [], []
        for name, measure in measures.items():
            value = measure(self.model)
            if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
                got = type(value).__name__
                if isinstance(value, Tensor):
                    detached = "detached from the weights (no .detach(), .item() or torch.no_grad() inside it)"
                    got = f"shape {list(value.shape)}" if value.numel() != 1 else f"one that is {detached}"
                raise ValueError(f"measure {name!r}: expected one differentiable number (a tensor), got {got}.")
            gradient = self._flat(torch.autograd.grad(value.reshape(()), self.parameters, allow_unused=True))
            if not bool(value.isfinite()) or not gradient.isfinite().all():
                raise ValueError(f"measure {name!r}: it or its derivative is not finite at the end of training.")
            values.append(float(value.detach()))
            rows.append(gradient)
        adjoint = torch.stack(rows)
        return np.array(values), State(adjoint, torch.zeros_like(adjoint), torch.zeros_like(adjoint))

    def _back(self, steps: range, adjoint: State, after: State) -> tuple[State, State, np.ndarray]:
        """Go back through some steps: return the adjoint and the state before them, and dM/dw of their tokens
        `[measure, token]`."""
        per_token: list[np.ndarray] = []
        for step in reversed(steps):
            t, rate = step + 1, self.source.rate(step)
            weights = self.adamw.weights_before(after, t, rate)
            self._set(weights)
            rows = self.source.rows(step)
            gradient = self._gradient(rows)
            before, u = self.adamw.back(adjoint, after, gradient, t, rate)
            after = State(weights, *self.adamw.moments_before(after, gradient))
            seconds, own = self._seconds(rows, u)
            before.weights.add_(seconds)
            if not before.weights.isfinite().all():
                raise ValueError(
                    f"step {step}: the derivative is not finite at eps_root={self.adamw.eps_root:g}; expected a larger "
                    f"one, such as {max(100 * self.adamw.eps_root, 1e-8):g}, or a run at a lower learning rate."
                )
            adjoint = before
            per_token.append(own.reshape(len(u), -1))
        return adjoint, after, np.concatenate(per_token[::-1], axis=1)

    def _gradient(self, rows: Int64[Tensor, "batch pos"]) -> Float[Tensor, " parameter"]:
        """The gradient of the mean loss."""
        loss = self.source.loss(self.model, rows)
        return self._flat(torch.autograd.grad(loss, self.parameters, allow_unused=True))

    def _seconds(
        self, rows: Int64[Tensor, "batch pos"], u: Float[Tensor, "measure parameter"]
    ) -> tuple[Float[Tensor, "measure parameter"], np.ndarray]:
        """Return ∇²(Σ ℓ ÷ n) u, and dM/dw of the tokens `[measure, window, pos]`: u · (∇ℓ − mean ∇ℓ) ÷ n.

        A few windows at a time: a second backward pass holds every activation of both passes, patterns among them."""
        seconds, own = torch.zeros_like(u), np.zeros((len(u), *rows.shape))
        n_tokens, at_once = rows[:, 1:].numel(), max(1, _TOKENS_AT_ONCE // rows.shape[1])
        for start in range(0, len(rows), at_once):
            with differentiable_twice():
                losses = self.source.losses(self.model, rows[start : start + at_once])
                by_token = torch.ones_like(losses, requires_grad=True)
                loss = (by_token * losses).sum() / n_tokens
                gradients = torch.autograd.grad(loss, self.parameters, create_graph=True, allow_unused=True)
                used = [
                    place for place, gradient in enumerate(gradients) if gradient is not None and gradient.requires_grad
                ]
                for place, each in enumerate(u):
                    parts = self._parts(each.to(losses.dtype))
                    *second, of_tokens = torch.autograd.grad(
                        [gradients[here] for here in used],
                        [*self.parameters, by_token],
                        [parts[here] for here in used],
                        retain_graph=place + 1 < len(u),
                        allow_unused=True,
                    )
                    seconds[place] += self._flat(second)
                    own[place, start : start + at_once, 1:] = of_tokens.numpy()
        own[:, :, 1:] -= own[:, :, 1:].mean((1, 2), keepdims=True)
        return seconds, own

    def _difference(self) -> float | None:
        """‖replayed − snapshot‖ ÷ ‖snapshot‖ of the last state that the run's snapshots have too."""
        run = self.source.snapshots
        shared = [] if run is None else [s for s in run.steps if 0 < s <= self.n_steps and self._path(s).is_file()]
        if run is None or not shared:
            return None
        known = dict(run[shared[-1]].named_parameters())
        theirs = self._flat([known[name] for name, _ in self.model.named_parameters()])
        return float((self._state(shared[-1]).weights - theirs).norm() / theirs.norm())

    def _say(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, 2 * self.n_steps)

    # Weights as one vector, and states on disk.

    def _set(self, weights: Float[Tensor, " parameter"]) -> None:
        with torch.no_grad():
            for parameter, part in zip(self.parameters, self._parts(weights), strict=True):
                parameter.copy_(part)

    def _parts(self, vector: Float[Tensor, " parameter"]) -> list[Tensor]:
        sizes = [parameter.numel() for parameter in self.parameters]
        return [part.view_as(parameter) for part, parameter in zip(vector.split(sizes), self.parameters, strict=True)]

    def _flat(self, parts: Sequence[Tensor | None]) -> Float[Tensor, " parameter"]:
        """Flatten the parts in float64; 0 for a parameter that is not used."""
        pairs = zip(parts, self.parameters, strict=True)
        return torch.cat([(torch.zeros_like(parameter) if part is None else part.detach()).flatten().double()
                          for part, parameter in pairs])  # fmt: skip

    def _path(self, step: int) -> Path:
        return self.folder / f"state-{step}.safetensors"

    def _keep(self, step: int, state: State) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        save_progress(self._path(step), state._asdict(), {}, self.identity)

    def _state(self, step: int) -> State:
        tensors, _ = load_progress(self._path(step), self.identity, "the replay", f"delete {self.folder}.")
        with boundary(self._path(step), "the state of the replay", f"Delete {self.folder}."):
            return State(*(tensors[name] for name in State._fields))


def _adamw(model: AttentionOnlyTransformer, run: RecipeRun, eps_root: float) -> AdamW:
    """Return AdamW as `make_optimiser` sets it, for the vector of all weights."""
    optimiser = make_optimiser(model, run.recipe)
    decays = {id(weights): group["weight_decay"] for group in optimiser.param_groups for weights in group["params"]}
    decay = [
        torch.full((weights.numel(),), float(decays[id(weights)]), dtype=torch.float64)
        for weights in model.parameters()
    ]
    return AdamW(
        betas=run.recipe.betas, clip=float(run.recipe.clip), decay=torch.cat(decay),
        eps=optimiser.defaults["eps"], eps_root=eps_root,
    )  # fmt: skip


def _relative(state: State, reference: State) -> float:
    """The largest difference of weights or moments between two states, by their norms; 0 where both are 0."""
    pairs = zip(state, reference, strict=True)
    return max(float((a - b).norm() / b.norm()) if b.any() else float(a.norm()) for a, b in pairs)
