"""FFNs of one width for all heads and seeds, trained as one batched problem.

    t̂ = W₂ [relu(W₁ [x̃; 1]); 1]        W₁ [problem, width, d_model + 1],  W₂ [problem, out, width + 1]

A problem is a (head, seed). Tokens are columns, so that the first layers of all problems of a layer are one matrix
product over the same x̃, and the rest are batched products over the problems, without copies. The gradient of the mean
squared error is written out (four products); Adam is PyTorch's.

A problem's weights depend on its own seed, head and width and on the text: not on which other problems there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import Head
from aotlens.distill.heads.scaling import Scaling

_BETAS = (0.9, 0.99)


@dataclass(frozen=True)
class Problem:
    """One FFN: `place` is the head's index among those distilled, `layer` its layer's index among theirs."""

    place: int
    layer: int
    head: Head
    seed: int


class FFNBatch:
    """The FFNs of one width, their optimiser, and the best of each so far."""

    def __init__(self, width: int, problems: Sequence[Problem], W1: Tensor, W2: Tensor, learning_rate: float) -> None:
        self.width = width
        self.problems = tuple(problems)
        self.learning_rate = learning_rate
        self.best_W1, self.best_W2 = W1.clone(), W2.clone()
        self.best = torch.full((len(problems),), math.inf, dtype=torch.float64)
        self.waited = torch.zeros(len(problems), dtype=torch.int64)
        self.stopped_at = torch.zeros(len(problems), dtype=torch.int64)  # tokens; 0: still trained
        self._place(list(range(len(problems))), W1, W2)

    def _place(self, active: list[int], W1: Tensor, W2: Tensor) -> None:
        """Train the problems numbered `active` from now on, with these weights."""
        self.active = active
        self.W1, self.W2 = W1.contiguous(), W2.contiguous()
        fused = W1.device.type in ("cpu", "cuda")
        self.optimiser = torch.optim.Adam([self.W1, self.W2], lr=0.0, betas=_BETAS, fused=fused)
        members = [self.problems[i] for i in active]
        self.by_layer = _runs([problem.layer for problem in members])
        places = [problem.place for problem in members]
        self.places = torch.tensor(places, device=W1.device)
        sizes = {stop - start for _, start, stop in self.by_layer}
        self._even = len(sizes) == 1
        self._layers = torch.tensor([layer for layer, _, _ in self.by_layer], device=W1.device)

    def hidden(self, x: Float[Tensor, "layer d tokens"]) -> Float[Tensor, "problem width_1 tokens"]:
        """Return relu(W₁ x̃), with a last row of ones."""
        n, width, d = self.W1.shape
        out = torch.empty(n, width + 1, x.shape[2], dtype=x.dtype, device=x.device)
        out[:, width] = 1
        if self._even:
            used = x if len(self.by_layer) == len(x) else x[self._layers]
            pre = torch.bmm(self.W1.view(len(self.by_layer), -1, d), used)
            torch.clamp(pre.view(n, width, -1), min=0, out=out[:, :width])
        else:
            for layer, start, stop in self.by_layer:
                pre = self.W1[start:stop].view(-1, d) @ x[layer]
                torch.clamp(pre.view(stop - start, width, -1), min=0, out=out[start:stop, :width])
        return out

    def residual(
        self, hidden: Float[Tensor, "problem width_1 tokens"], t: Float[Tensor, "head out tokens"]
    ) -> Float[Tensor, "problem out tokens"]:
        """Return the errors t̂ − t at every token."""
        return torch.bmm(self.W2, hidden).sub_(t[self.places])

    def step(self, x: Float[Tensor, "layer d tokens"], t: Float[Tensor, "head out tokens"], factor: float) -> None:
        """Take one step of Adam on the mean squared error of these tokens, at `factor` of the learning rate."""
        width = self.width
        hidden = self.hidden(x)
        residual = self.residual(hidden, t).mul_(2 / (t.shape[1] * t.shape[2]))
        self.W2.grad = torch.bmm(residual, hidden.transpose(1, 2))
        back = torch.bmm(self.W2[:, :, :width].transpose(1, 2), residual)
        back = torch.ops.aten.threshold_backward(back, hidden[:, :width], 0)
        if self._even:
            used = x if len(self.by_layer) == len(x) else x[self._layers]
            gradient = torch.bmm(back.view(len(self.by_layer), -1, x.shape[2]), used.transpose(1, 2))
        else:
            gradient = torch.cat(
                [back[start:stop].reshape(-1, x.shape[2]) @ x[layer].T for layer, start, stop in self.by_layer]
            )
        self.W1.grad = gradient.view(self.W1.shape)
        self.optimiser.param_groups[0]["lr"] = factor * self.learning_rate
        self.optimiser.step()

    def squared_errors(
        self, x: Float[Tensor, "layer d tokens"], t: Float[Tensor, "head out tokens"]
    ) -> Float[Tensor, "problem tokens"]:
        """Return ‖t̂ − t‖² at every token, of the problems that are trained now. Memory: 256 MB besides the result."""
        size = self.columns_at_once(t.shape[1])
        parts = zip(x.split(size, dim=2), t.split(size, dim=2), strict=True)
        return torch.cat([self.residual(self.hidden(a), b).square_().sum(1) for a, b in parts], dim=1)

    def columns_at_once(self, n_out: int) -> int:
        """Return how many tokens' hidden units and outputs, of all problems, are held at once outside of training."""
        numbers = max(1, len(self.active)) * (self.width + 1 + 2 * n_out)
        return min(4096, max(64, 2**25 // numbers))

    def note(self, errors: Float[Tensor, " problem"], tokens: int, tolerance: float, patience: int) -> None:
        """Take the errors of the active problems on validation text: keep the best weights, stop who has settled.

        A problem stops once `patience` evaluations in a row have not brought its best error down by `tolerance` of it.
        """
        errors = errors.double().cpu()
        for row, index in enumerate(self.active):
            if self.stopped_at[index]:
                continue
            error, best = float(errors[row]), float(self.best[index])
            if not math.isfinite(error):
                problem = self.problems[index]
                raise ValueError(
                    f"head {problem.head[0]}.{problem.head[1]}, {self.width} hidden units, seed {problem.seed}: the "
                    "error is not finite; lower learning_rate."
                )
            self.waited[index] = 0 if error < best * (1 - tolerance) else self.waited[index] + 1
            if error < best:
                self.best[index] = error
                self.best_W1[index], self.best_W2[index] = self.W1[row], self.W2[row]
            if self.waited[index] >= patience:
                self.stopped_at[index] = tokens
        running = [row for row, index in enumerate(self.active) if not self.stopped_at[index]]
        if len(running) <= 0.75 * len(self.active):
            self._keep(running)

    def _keep(self, rows: list[int]) -> None:
        """Go on with these rows of the active problems only."""
        old = [self.optimiser.state[parameter] for parameter in (self.W1, self.W2)]
        self._place([self.active[row] for row in rows], self.W1[rows], self.W2[rows])
        for parameter, state in zip((self.W1, self.W2), old, strict=True):
            if state:
                moments = {name: state[name][rows].contiguous() for name in ("exp_avg", "exp_avg_sq")}
                self.optimiser.state[parameter] = {"step": state["step"], **moments}

    def offer(
        self,
        W1: Float[Tensor, "head width d"],
        W2: Float[Tensor, "head out width_1"],
        x: Float[Tensor, "layer d tokens"],
        t: Float[Tensor, "head out tokens"],
    ) -> list[int]:
        """Take other networks, one a head, where they do better on validation text; which problems did. Call it after
        `restore_best`."""
        own = self.W1, self.W2
        of_problem = torch.tensor([problem.place for problem in self.problems], device=W1.device)
        self._place(self.active, W1[of_problem].to(own[0]), W2[of_problem].to(own[1]))
        errors = self.squared_errors(x, t).sum(1).double().cpu()
        better = (errors < self.best).nonzero().flatten().tolist()
        for row in better:
            self.best[row] = errors[row]
            self.best_W1[row], self.best_W2[row] = self.W1[row], self.W2[row]
        self.restore_best()
        return better

    def restore_best(self) -> None:
        """Restore all problems, each with its best weights; training is over."""
        self._place(list(range(len(self.problems))), self.best_W1, self.best_W2)


def start_batch(
    width: int,
    problems: Sequence[Problem],
    scaling: Scaling,
    x: Float[Tensor, "layer d tokens"],
    t: Float[Tensor, "head out tokens"],
    learning_rate: float,
) -> FFNBatch:
    """Return units that look along the best linear map, and output weights that are best for those units on (x, t).

    With warm = U S Vᵀ, the units' directions are a random rotation of the first columns of U; any beyond its rank are
    random mixtures of them in proportion to S. Biases are normal, 0.3 wide. Everything random is a function of (seed,
    layer, head, width).
    """
    dtype, device = x.dtype, x.device
    W1 = torch.stack([_first_layer(width, problem, scaling.warm[problem.place]) for problem in problems])
    W1 = W1.to(dtype=dtype, device=device)
    W2 = torch.zeros(len(problems), t.shape[1], width + 1, dtype=dtype, device=device)
    batch = FFNBatch(width, problems, W1, W2, learning_rate)
    gram = torch.zeros(len(problems), width + 1, width + 1, dtype=torch.float64, device=device)
    cross = torch.zeros(len(problems), width + 1, t.shape[1], dtype=torch.float64, device=device)
    size = batch.columns_at_once(t.shape[1])
    for some_x, some_t in zip(x.split(size, dim=2), t.split(size, dim=2), strict=True):
        hidden = batch.hidden(some_x)
        gram += torch.bmm(hidden, hidden.transpose(1, 2)).double() / x.shape[2]
        cross += torch.bmm(hidden, some_t[batch.places].transpose(1, 2)).double() / x.shape[2]
    diagonal = gram.diagonal(dim1=1, dim2=2)
    gram = gram + torch.diag_embed(1e-4 * diagonal.clamp(min=1e-6))
    # By Cholesky, since gram is positive definite: a batched LU returned pivots of 0 with MKL on one machine.
    batch.W2 = torch.cholesky_solve(cross, torch.linalg.cholesky(gram)).transpose(1, 2).to(dtype)
    batch._place(batch.active, batch.W1, batch.W2)
    batch.best_W1, batch.best_W2 = batch.W1.clone(), batch.W2.clone()
    return batch


def _first_layer(width: int, problem: Problem, warm: Float[Tensor, "d_model out"]) -> Float[Tensor, "width d_model_1"]:
    entropy = [problem.seed, *problem.head, width]
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> 1))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    U, S, _ = torch.linalg.svd(warm.cpu(), full_matrices=False)
    rank = min(width, len(S))
    rotation, _ = torch.linalg.qr(normal(rank, rank))
    directions = rotation @ U[:, :rank].T
    if width > rank:
        mixed = normal(width - rank, len(S)) * S.clamp(min=1e-6 * float(S[0]) + 1e-12) @ U.T
        directions = torch.cat([directions, F.normalize(mixed, dim=1)])
    return torch.cat([directions, 0.3 * normal(width, 1)], dim=1)


def _runs(layers: list[int]) -> list[tuple[int, int, int]]:
    """(layer, start, stop) of each run of equal entries."""
    runs: list[tuple[int, int, int]] = []
    for row, layer in enumerate(layers):
        if runs and runs[-1][0] == layer:
            runs[-1] = (layer, runs[-1][1], row + 1)
        else:
            runs.append((layer, row, row + 1))
    return runs
