"""Several layers of attention as an in-context denoiser: what a second layer gains, tied or untied.

*in-context-denoising* leaves depth open (§5). Here every layer moves all tokens, those of the context too,

    s ← ρ s + φ(s W_QK Kᵀ) K W_OV,      K the context's L tokens as they now are, s any token or the query,

with a learned number ρ; the query is no key. The estimate is the query's state after the last layer, so that depth 1
with ρ = 0 is the paper's layer. Tied layers share ρ, W_QK and W_OV. A two-stage reading (empirical Bayes) would have
early layers sharpen the context, which stands for the prior, and a last one average it for the query; `frozen_loss` is
what the trained layers lose on the context as it was given, and `loss_by_layer` what each layer adds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from aotlens.denoise.tasks import Prompts, Task
from aotlens.denoise.training import TrainingSettings, sample_test_prompts
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

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
    settings: TrainingSettings
    seeds: tuple[int, ...]
    W_QK: Float[Tensor, "run layer n n"]
    """Tied layers are the same in every `layer`."""
    W_OV: Float[Tensor, "run layer n n"]
    skip: Float[Tensor, "run layer"]
    """ρ."""
    train_loss: Float[Tensor, "run epoch"]
    test_loss: Float[Tensor, " run"]
    """On prompts kept apart, after training."""
    loss_by_layer: Float[Tensor, "run state"]
    """The same of the query's state as an estimate, before every layer and after the last."""
    frozen_loss: Float[Tensor, " run"]
    """The same after the last layer where the context stays as it was given."""

    @property
    def headline(self) -> str:
        layers = "1 layer" if self.skip.shape[1] == 1 else f"{self.skip.shape[1]} layers"
        tied = ", tied" if self.tied else ""
        return f"{layers}{tied}: mean test loss {float(self.test_loss.mean()):.3g}"

    def to_frame(self) -> pd.DataFrame:
        """One row a run and layer: ρ, mean diagonals α and β, and the loss of the query's state after the layer."""
        import pandas as pd

        rows = []
        for run, seed in enumerate(self.seeds):
            for layer in range(self.skip.shape[1]):
                rows.append(
                    {
                        "seed": seed,
                        "layer": layer,
                        "skip": float(self.skip[run, layer]),
                        "alpha": float(self.W_OV[run, layer].diagonal().mean()),
                        "beta": float(self.W_QK[run, layer].diagonal().mean()),
                        "loss": float(self.loss_by_layer[run, layer + 1]),
                    }
                )
        return pd.DataFrame(rows)


def train_depth(
    task: Task,
    n_layers: int,
    *,
    kind: str = "softmax",
    tied: bool = False,
    settings: TrainingSettings | None = None,
    seeds: Sequence[int] = (0, 1),
    dtype: torch.dtype = torch.float32,
    progress: Callable[[int, int], None] | None = None,
) -> DeepDenoisers:
    """Train `n_layers` layers for each seed by Adam, all runs together, on the same prompts and batches.

    Seeds draw the initial weights, uniform in ±1/√n; ρ starts at 1, as in a residual stream. `progress(done, total)`
    counts epochs. Time: O(runs · epochs · prompts · layers · L² · n).

    Raises `ValueError` for fewer than 1 layer, an unknown `kind`, no seeds, and a loss that ceases to be finite.
    """
    settings = settings or TrainingSettings()
    if n_layers < 1 or not len(seeds):
        raise ValueError(f"train_depth: expected at least 1 layer and 1 seed, got {n_layers} and {len(seeds)}.")
    if kind not in _PATTERNS:
        raise ValueError(f"kind={kind!r}: expected one of {', '.join(map(repr, _PATTERNS))}.")
    prompts = task.sample(settings.n_prompts, settings.n_context, 2 * seeds[0], dtype=dtype)
    test = sample_test_prompts(task, settings, seeds, dtype=dtype)
    own = 1 if tied else n_layers
    bound = task.n**-0.5
    drawn = torch.stack(
        [torch.rand(own, 2, task.n, task.n, generator=torch.Generator().manual_seed(s), dtype=dtype) for s in seeds]
    )
    weights = ((2 * drawn - 1) * bound).requires_grad_()  # [run, layer, QK or OV, n, n]
    skip = torch.ones(len(seeds), own, dtype=dtype, requires_grad=True)
    optimizer = torch.optim.Adam([weights, skip], lr=settings.learning_rate)
    generator = torch.Generator().manual_seed(seeds[0])
    curve = []
    for epoch in range(settings.n_epochs):
        batches = torch.randperm(settings.n_prompts, generator=generator).split(settings.batch_size)
        total = torch.zeros(len(seeds), dtype=dtype)
        for rows in batches:
            states = _states(prompts.context[rows], prompts.query[rows], weights, skip, n_layers, kind)
            losses = (states[-1] - prompts.target[rows]).pow(2).sum(-1).mean(-1)
            optimizer.zero_grad()
            losses.sum().backward()
            optimizer.step()
            total += losses.detach() / len(batches)
        if not total.isfinite().all():
            raise ValueError(f"epoch {epoch}: the loss is not finite; take less than {settings.learning_rate}.")
        curve.append(total)
        if progress is not None:
            progress(epoch + 1, settings.n_epochs)
    with torch.no_grad():
        by_layer = _losses(test, weights, skip, n_layers, kind)
        frozen = _losses(test, weights, skip, n_layers, kind, frozen=True)
    every = [min(layer, own - 1) for layer in range(n_layers)]
    return DeepDenoisers(
        task=task,
        kind=kind,
        tied=tied,
        settings=settings,
        seeds=tuple(seeds),
        W_QK=weights.detach()[:, every, 0],
        W_OV=weights.detach()[:, every, 1],
        skip=skip.detach()[:, every],
        train_loss=torch.stack(curve, dim=1),
        test_loss=by_layer[:, -1],
        loss_by_layer=by_layer,
        frozen_loss=frozen[:, -1],
    )


def _states(
    context: Tensor, query: Tensor, weights: Tensor, skip: Tensor, n_layers: int, kind: str, frozen: bool = False
) -> list[Tensor]:
    """The query's state before every layer and after the last, `[run, prompt, n]` each."""
    tokens = torch.cat([context, query[:, None]], dim=1).expand(len(weights), -1, -1, -1)
    queries = [tokens[:, :, -1]]
    for layer in range(n_layers):
        W_QK, W_OV = weights[:, min(layer, weights.shape[1] - 1)].unbind(1)
        keys = tokens[:, :, :-1]
        asking = tokens[:, :, -1:] if frozen or layer == n_layers - 1 else tokens
        pattern = _PATTERNS[kind](asking @ W_QK[:, None] @ keys.mT)
        moved = skip[:, min(layer, skip.shape[1] - 1), None, None, None] * asking + pattern @ keys @ W_OV[:, None]
        queries.append(moved[:, :, -1])
        tokens = torch.cat([keys, moved], dim=2) if asking.shape[2] == 1 else moved
    return queries


def _losses(
    prompts: Prompts, weights: Tensor, skip: Tensor, n_layers: int, kind: str, frozen: bool = False
) -> Float[Tensor, "run state"]:
    states = _states(prompts.context, prompts.query, weights, skip, n_layers, kind, frozen)
    return torch.stack([(state - prompts.target).pow(2).sum(-1).mean(-1) for state in states], dim=1)
