"""In-context denoisers trained all seeds at once, against one seed after another and against a plain PyTorch loop.

    python -m benchmarks.denoisers [--quick] [--pairs 3] [--threads 1] [--json PATH]

Six seeds of linear and of softmax attention on the subspaces of *in-context-denoising* (n = 16, 499 context tokens, 800
prompts, batch 80), 60 epochs of linear and 8 of softmax attention, runs in turn, medians over
pairs. Both sides are given the same prompts, drawn before; ours still computes every XXᵀ. The plain loop is what one
would write: a seed at a time, attention over the tokens of every context. Its weights must equal ours. For softmax
attention runs that share their prompts are measured too.

Expected: linear attention seven times faster than the plain loop (3.5 of it from training all seeds at once, the rest
from XXᵀ); softmax about as fast with prompts of its own, twice as fast with shared ones. Three minutes; `--quick` takes
seconds, and its ratios mean little.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import torch
from torch import Tensor

from aotlens.denoise import LinearSubspaces, Prompts, Task, TrainedLayers, TrainingSettings
from aotlens.denoise.training import sample_test_prompts, train_on
from benchmarks import _common


def plain_loop(kind: str, prompts: Prompts, settings: TrainingSettings, seed: int) -> tuple[Tensor, Tensor]:
    """Train W_QK and W_OV of one seed as the formula of the layer stands."""
    n = prompts.query.shape[1]
    generator = torch.Generator().manual_seed(seed)
    W_QK, W_OV = ((2 * torch.rand(2, n, n, generator=generator) - 1) * n**-0.5).unbind(0)
    W_QK, W_OV = W_QK.clone().requires_grad_(), W_OV.clone().requires_grad_()
    optimizer = torch.optim.Adam([W_QK, W_OV], lr=settings.learning_rate)
    for _ in range(settings.n_epochs):
        for rows in torch.randperm(settings.n_prompts, generator=generator).split(settings.batch_size):
            context = prompts.context[rows]
            scores = (prompts.query[rows] @ W_QK)[:, None] @ context.mT
            pattern = scores / context.shape[1] if kind == "linear" else scores.softmax(-1)
            estimate = (pattern @ context @ W_OV)[:, 0]
            loss = (estimate - prompts.target[rows]).pow(2).sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return W_QK.detach(), W_OV.detach()


def measure(task: Task, kind: str, settings: TrainingSettings, n_seeds: int, pairs: int) -> dict[str, Any]:
    """Return times of training all seeds, on prompts that were drawn before."""
    seeds = tuple(range(n_seeds))
    drawn = [task.sample(settings.n_prompts, settings.n_context, 2 * seed, dtype=torch.float32) for seed in seeds]
    test = sample_test_prompts(task, settings, seeds, dtype=torch.float32)

    def together() -> TrainedLayers:
        return train_on(drawn, test, task, kind, settings, seeds=seeds)

    def shared() -> TrainedLayers:
        return train_on(drawn[:1], test, task, kind, settings, seeds=seeds)

    def one_after_another() -> None:
        for seed, prompts in zip(seeds, drawn, strict=True):
            train_on([prompts], test, task, kind, settings, seeds=(seed,))

    def plain() -> list[tuple[Tensor, Tensor]]:
        return [plain_loop(kind, prompts, settings, seed) for seed, prompts in zip(seeds, drawn, strict=True)]

    layers = together()
    for run, (W_QK, W_OV) in enumerate(plain()):
        torch.testing.assert_close(layers.W_QK[run], W_QK, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(layers.W_OV[run], W_OV, rtol=1e-3, atol=1e-3)
    rows = {"plain loop": plain, "one after another": one_after_another}
    if kind != "linear":
        rows["own prompts ÷ shared prompts"] = together
    result: dict[str, Any] = {"attention": kind, "seeds": n_seeds, "epochs": settings.n_epochs}
    for name, theirs in rows.items():
        timing = _common.time_in_turn(theirs, shared if "shared" in name else together, pairs)
        result |= {f"{name}, times": timing.ratio, f"{name}, processor time": timing.cpu_ratio}
    return result


def main(argv: list[str] | None = None) -> int:
    arguments = _common.parser(__doc__).parse_args(argv)
    pairs = arguments.pairs or (1 if arguments.quick else 3)
    task = LinearSubspaces(n=6, d=3) if arguments.quick else LinearSubspaces()
    settings = TrainingSettings(n_epochs=60, n_test_prompts=80)
    if arguments.quick:
        settings = TrainingSettings(n_prompts=40, batch_size=20, n_context=20, n_epochs=2, n_test_prompts=20)
    for kind in ("linear", "softmax"):
        own = settings if kind == "linear" or arguments.quick else dataclasses.replace(settings, n_epochs=8)
        _common.report(
            f"denoisers: {kind}", [measure(task, kind, own, 2 if arguments.quick else 6, pairs)], arguments.json
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
