"""Several layers of attention as an in-context denoiser: what a second layer gains, tied or untied.

*in-context-denoising* leaves depth open (§5). Here every layer moves all tokens, those of the context too,

    s ← ρ s + φ(s W_QK Kᵀ) K W_OV,      K the context's L tokens as they now are, s any token or the query,

with a learned number ρ; the query is no key. The estimate is the query's state after the last layer, so that depth 1
with ρ = 0 is the paper's layer. Tied layers share ρ, W_QK and W_OV.

A later paper (arXiv 2605.29351) reads such layers as two-stage empirical Bayes: early layers refine the context, which
stands for the prior, and a last one averages it for the query as it was given, which a long skip connection carries
there (`long_skip`); its contexts are as noisy as its queries (`noisy_context`). `context_loss` says how good a prior
the context has become: the least loss of one softmax layer of scaled identities that reads the moved context and the
query as given. If layers refine it, that falls from layer to layer. `frozen_loss` is what the trained layers lose on
the context as given, `held_loss` where the query moves in the last layer only, and `loss_by_layer` what each layer
adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import require_seed
from aotlens.denoise.one_layer import landscape
from aotlens.denoise.tasks import Prompts, Task
from aotlens.denoise.training import TrainingSettings, sample_test_prompts
from aotlens.results import Result

#: The tokens that may be kept from moving before the last layer.
_Still = Literal["context", "query"]
#: φ of several layers: scores `[…, token, context]` → shares of the context.
_PATTERNS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda scores: scores / scores.shape[-1],
    "softmax": lambda scores: scores.softmax(-1),
}


@dataclass(frozen=True, kw_only=True)
class DeepDenoisers(Result):
    """Layers trained together on one task, a run for each seed; losses are squared errors summed over n."""

    task: Task
    kind: str
    tied: bool
    noisy_context: bool
    """Whether the context has the query's noise too."""
    long_skip: bool
    """Whether the query stays as given until the last layer."""
    settings: TrainingSettings
    seeds: tuple[int, ...]
    W_QK: Float[Tensor, "run layer n n"]
    """Tied layers are the same in every `layer`."""
    W_OV: Float[Tensor, "run layer n n"]
    skip: Float[Tensor, "run layer"]
    """The factor ρ."""
    train_loss: Float[Tensor, "run epoch"]
    test_loss: Float[Tensor, " run"]
    """The loss on prompts kept apart, after training."""
    loss_by_layer: Float[Tensor, "run state"]
    """The same of the query's state as an estimate, before every layer and after the last."""
    frozen_loss: Float[Tensor, " run"]
    """The same after the last layer where the context stays as it was given."""
    held_loss: Float[Tensor, " run"]
    """The same where the query stays as it was given until the last layer, which reads the moved context; with
    `long_skip` that is what was trained."""
    context_loss: Float[Tensor, "run layer"]
    """The least loss of softmax attention with scaled identities from the query as given to the context that each
    layer reads: entry 0 is of the context as given."""

    @property
    def late_fall(self) -> Float[Tensor, " run"]:
        """Return by what share the training loss still fell: 1 − its mean over the last tenth of the epochs ÷ that over
        the tenth before; 0 where it has converged, or the learning rate has. At least one epoch each."""
        tenth = max(self.train_loss.shape[1] // 10, 1)
        last, before = self.train_loss[:, -tenth:], self.train_loss[:, -2 * tenth : -tenth]
        return 1 - last.mean(1) / before.mean(1)

    @property
    def headline(self) -> str:
        layers = "1 layer" if self.skip.shape[1] == 1 else f"{self.skip.shape[1]} layers"
        named = {"tied": self.tied, "noisy context": self.noisy_context, "long skip": self.long_skip}
        options = "".join(f", {name}" for name, on in named.items() if on)
        return f"{layers}{options}: mean test loss {float(self.test_loss.mean()):.3g}"


def train_depth(
    task: Task,
    n_layers: int,
    *,
    kind: str = "softmax",
    tied: bool = False,
    noisy_context: bool = False,
    long_skip: bool = False,
    settings: TrainingSettings | None = None,
    seeds: Sequence[int] = (0, 1),
    dtype: torch.dtype = torch.float32,
) -> DeepDenoisers:
    """Train `n_layers` layers for each seed by Adam, all runs together, on the same prompts and batches.

    `noisy_context` gives the context tokens the query's noise, drawn once a prompt; with `long_skip` the query stays as
    given until the last layer. Seeds draw the initial weights, uniform in ±1/√n, and W_OV is divided by √n_layers, so
    that the stream at first grows with depth no more than by one layer; ρ starts at 1, as in a residual stream.
    Time: O(runs · epochs · prompts · layers · L² · n).

    Raises `ValueError` for a loss that ceases to be finite.
    """
    settings = settings or TrainingSettings()
    prompts = task.sample(settings.n_prompts, settings.n_context, 2 * seeds[0], dtype=dtype)
    test = sample_test_prompts(task, settings, seeds, dtype=dtype)
    if noisy_context:
        prompts, test = with_noise(prompts, task, 2 * seeds[0]), with_noise(test, task, 2 * seeds[0] + 1)
    still: _Still | None = "query" if long_skip else None
    own = 1 if tied else n_layers
    bound = task.n**-0.5
    drawn = torch.stack(
        [torch.rand(own, 2, task.n, task.n, generator=torch.Generator().manual_seed(s), dtype=dtype) for s in seeds]
    )
    initial = (2 * drawn - 1) * bound  # [run, layer, QK or OV, n, n]
    initial[:, :, 1] /= n_layers**0.5
    weights = initial.requires_grad_()
    skip = torch.ones(len(seeds), own, dtype=dtype, requires_grad=True)
    optimizer = torch.optim.Adam([weights, skip], lr=settings.learning_rate, fused=True)
    generator = torch.Generator().manual_seed(seeds[0])
    curve = []
    for epoch in range(settings.n_epochs):
        batches = torch.randperm(settings.n_prompts, generator=generator).split(settings.batch_size)
        total = torch.zeros(len(seeds), dtype=dtype)
        for batch, rows in enumerate(batches):
            queries, _ = _states(prompts.context[rows], prompts.query[rows], weights, skip, n_layers, kind, still)
            losses = (queries[-1] - prompts.target[rows]).pow(2).sum(-1).mean(-1)
            optimizer.zero_grad()
            losses.sum().backward()
            optimizer.param_groups[0]["lr"] = settings.rate_at(epoch * len(batches) + batch)
            optimizer.step()
            total += losses.detach() / len(batches)
        if not total.isfinite().all():
            raise ValueError(f"epoch {epoch}: the loss is not finite; take less than {settings.learning_rate}.")
        curve.append(total)
    with torch.no_grad():
        queries, contexts = _states(test.context, test.query, weights, skip, n_layers, kind, still)
        by_layer = torch.stack([_loss(state, test) for state in queries], dim=1)
        ablated = {
            held: _loss(_states(test.context, test.query, weights, skip, n_layers, kind, held)[0][-1], test)
            for held in get_args(_Still)
        }
        priors = torch.stack([_least_losses(context, test) for context in contexts], dim=1)
    every = [min(layer, own - 1) for layer in range(n_layers)]
    return DeepDenoisers(
        task=task,
        kind=kind,
        tied=tied,
        noisy_context=noisy_context,
        long_skip=long_skip,
        settings=settings,
        seeds=tuple(seeds),
        W_QK=weights.detach()[:, every, 0],
        W_OV=weights.detach()[:, every, 1],
        skip=skip.detach()[:, every],
        train_loss=torch.stack(curve, dim=1),
        test_loss=by_layer[:, -1],
        loss_by_layer=by_layer,
        frozen_loss=ablated["context"],
        held_loss=ablated["query"],
        context_loss=priors,
    )


def with_noise(prompts: Prompts, task: Task, seed: int) -> Prompts:
    """Return the prompts with the query's noise on every context token."""
    generator = torch.Generator().manual_seed(require_seed(seed))
    noise = torch.randn(prompts.context.shape, generator=generator, dtype=torch.float64).to(prompts.context)
    return replace(prompts, context=prompts.context + task.noise_variance**0.5 * noise)


def _states(
    context: Tensor,
    query: Tensor,
    weights: Tensor,
    skip: Tensor,
    n_layers: int,
    kind: str,
    still: _Still | None = None,
) -> tuple[list[Tensor], list[Tensor]]:
    """The query's state before every layer and after the last, `[run, prompt, n]` each; and the context that each layer
    reads, `[run, prompt, L, n]`. `still`: what does not move before the last layer."""
    tokens = torch.cat([context, query[:, None]], dim=1).expand(len(weights), -1, -1, -1)
    queries, contexts = [tokens[:, :, -1]], []
    for layer in range(n_layers):
        W_QK, W_OV = weights[:, min(layer, weights.shape[1] - 1)].unbind(1)
        keys = tokens[:, :, :-1]
        contexts.append(keys)
        last = layer == n_layers - 1
        asking = tokens[:, :, -1:] if last or still == "context" else tokens
        pattern = _PATTERNS[kind](_times(asking, W_QK) @ keys.mT)
        moved = skip[:, min(layer, skip.shape[1] - 1), None, None, None] * asking + _times(pattern @ keys, W_OV)
        if still == "query" and not last:
            moved = torch.cat([moved[:, :, :-1], tokens[:, :, -1:]], dim=2)
        queries.append(moved[:, :, -1])
        tokens = torch.cat([keys, moved], dim=2) if asking.shape[2] == 1 else moved
    return queries, contexts


def _times(tokens: Float[Tensor, "run prompt token n"], weights: Float[Tensor, "run n n"]) -> Tensor:
    """Every token of a run times the run's matrix, as one product a run, which is faster than one a prompt."""
    return (tokens.flatten(1, 2) @ weights).unflatten(1, tokens.shape[1:3])


def _loss(state: Float[Tensor, "run prompt n"], prompts: Prompts) -> Float[Tensor, " run"]:
    return (state - prompts.target).pow(2).sum(-1).mean(-1)


def _least_losses(contexts: Float[Tensor, "run prompt context n"], prompts: Prompts) -> Float[Tensor, " run"]:
    """The least loss of one softmax layer of scaled identities on each run's context, over β and the best α of each.

    β is sought in units of 1 ÷ the context's root mean square, so that a context that was scaled loses no more.
    """
    alpha = torch.ones(1, dtype=contexts.dtype)
    losses = []
    for context in contexts:
        betas = torch.logspace(-1, 2.5, 60, dtype=contexts.dtype) / context.pow(2).sum(-1).mean().sqrt()
        losses.append(landscape(replace(prompts, context=context), alpha, betas).minimum.loss)
    return torch.tensor(losses, dtype=contexts.dtype)
