"""Attribution patching: what patching a cell would do, estimated from one gradient, beside what it does.

With a the base's activation of a cell, a′ the other prompt's, and m the metric of the base run,

    m(a′) − m(a)  ≈  ⟨a′ − a, ∂m/∂a⟩                                   two forward passes and one backward
                  ≈  ⟨a′ − a, mean over steps of ∂m/∂a⟩                integrated: the inputs on the way to the others

(Nanda 2023; integrated, Hanna et al. 2024). The estimate is wrong where the metric bends between the two runs, as with
a saturated softmax, so the cells with the largest estimates are patched too, and the result has the rank correlation of
estimate and exact value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.conventions import Progress, minus, require_whole
from aotlens.data.pairs import PromptPairs
from aotlens.models import AttentionOnlyTransformer, hook_names
from aotlens.patching.both import Estimates, estimate_and_check, require_slope, shared_words
from aotlens.patching.metrics import PairMetric, batches, cell_words, require_one_length
from aotlens.patching.sweep import HEADS, Batch, axes_of, checked
from aotlens.paths.runs import Probes

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class Attribution(Estimates):
    """The estimated effect of every cell, and the exact one of those with the largest estimates; means over pairs."""

    what: str
    direction: str
    metric: str
    unit: str
    axes: tuple[str, ...]
    steps: int
    """Points of the integral; 1: the plain gradient."""
    estimate: Float64[np.ndarray, " *cell"]
    """The estimated change of the metric when the cell is patched."""
    checked: Int64[np.ndarray, "checked axis"]
    """The cells that were patched, the largest estimate first."""
    exact: Float64[np.ndarray, " checked"]
    """The change of the metric when each of them is patched."""
    str_tokens: tuple[str, ...] = ()
    """The tokens as in `Patched`."""

    def cell(self, place: Iterable[Any]) -> dict[str, int]:
        """Return the layer, head and position of an index of `estimate`."""
        return {axis: int(index) for axis, index in zip(self.axes, place, strict=True)}

    @property
    def worst(self) -> tuple[tuple[int, ...], float]:
        """The patched cell whose estimate is farthest off, and estimate − exact there."""
        miss = self.estimated - self.exact
        worst = int(np.abs(miss).argmax())
        return tuple(int(place) for place in self.checked[worst]), float(miss[worst])

    @property
    def headline(self) -> str:
        return self._quality(
            "cells", lambda number: ", ".join(f"{axis} {at}" for axis, at in self.cell(self.checked[number]).items())
        )

    def sentences(self) -> str:
        """Return how far the estimate is from the exact change, over the cells that were patched."""
        cell, miss = self.worst
        return (
            f"Of the {len(self.exact)} cells that the gradient calls largest, estimate and exact change have a rank "
            f"correlation of {self.rank_correlation:.2f}. The estimate is farthest off at "
            f"{cell_words(self.cell(cell), self.str_tokens)}: by {minus(miss, '+.3f')} {self.unit}."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a cell, the largest estimate first: the axes, estimate, exact (missing where it was not
        patched)."""
        import pandas as pd

        index = np.stack(np.unravel_index(np.arange(self.estimate.size), self.estimate.shape), 1)
        frame = pd.DataFrame(index, columns=list(self.axes)).assign(estimate=self.estimate.ravel())
        known = {tuple(cell): value for cell, value in zip(self.checked.tolist(), self.exact, strict=True)}
        frame["exact"] = [known.get(tuple(cell), np.nan) for cell in index.tolist()]
        return frame.sort_values("estimate", key=abs, ascending=False, kind="stable", ignore_index=True)


def attribution(
    model: AttentionOnlyTransformer,
    pairs: PromptPairs,
    what: str = "z",
    metric: str | PairMetric = "logit_difference",
    *,
    direction: str = "denoising",
    by_position: bool | None = None,
    steps: int = 1,
    check: int = 20,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> Attribution:
    """Estimate every cell of `aotlens.patching.patch` from gradients, and patch the `check` largest.

    Arguments are those of `patch`. `steps` > 1 integrates the gradient over that many inputs between the two prompts,
    which then have equally many tokens. Cost without the check: two forward passes and a backward one, and with `steps`
    as many of both on top; gradients are of activations alone, not of weights. A custom metric is to be
    differentiable.

    Raises `ValueError` as `patch`, for steps or check below 1, and for a metric without a gradient, as "kl" has none at
    the clean prompt, where noising starts.
    """
    for name, count in (("steps", steps), ("check", check), ("batch_size", batch_size)):
        require_whole(name, count, 1)
    measure, by_position = checked(model, what, metric, direction, by_position)
    require_slope(measure, direction, steps)
    if by_position:
        require_one_length(pairs, direction)
    parts = [pairs.at(rows) for rows in batches(pairs, batch_size)]
    with torch.no_grad():
        all_batches = [Batch(model, part, what, measure, direction, probed=steps == 1) for part in parts]
    fields = estimate_and_check(
        all_batches,
        lambda batch: _estimate(batch, by_position, steps),
        lambda batch, cells: batch.some([tuple(cell) for cell in cells.tolist()]),
        check,
        progress=progress,
    )
    words = shared_words(pairs, direction) if by_position else ()
    axes = axes_of(what, by_position)
    return Attribution(what=what, direction=direction, axes=axes, steps=steps, str_tokens=words, **fields)


@torch.no_grad()
def _estimate(batch: Batch, by_position: bool, steps: int) -> Float64[np.ndarray, " *cell"]:
    """The mean over pairs of ⟨a′ − a, gradient⟩ of every cell."""
    model, of_heads = batch.model, batch.what in HEADS
    names = [batch.hook(layer) for layer in range(model.cfg.n_layers)]
    gradients = [torch.zeros(()) for _ in names]
    for step in range(steps):
        share = 0.0 if steps == 1 else (step + 0.5) / steps
        gradients = [
            sum_ + gradient / steps for sum_, gradient in zip(gradients, _gradients(batch, share), strict=True)
        ]
    values = []
    for name, gradient in zip(names, gradients, strict=True):
        own, theirs = (run.cache[name] for run in (batch.base, batch.source))
        if batch.what == "pattern":
            own, theirs, gradient = (values.transpose(1, 2) for values in (own, theirs, gradient))
        product = (batch.mixed(own, theirs, None) - own) * gradient  # [pair, pos, (head), …]
        of_cell = product.sum(-1).mean(0)  # [pos, (head)]
        if of_heads:
            of_cell = of_cell.T if by_position else of_cell.sum(0)
        values.append(of_cell.cpu().double().numpy())
    return np.stack(values)


def _gradients(batch: Batch, share: float) -> list[Tensor]:
    """∂ metric ÷ ∂ activation at each layer's hook, `share` of the way to the other prompt's inputs."""
    if batch.probes and not share:  # the base was recorded
        with torch.enable_grad():
            return batch.probes.gradients(batch.of(batch.base.final[None]).sum())
    model, probes = batch.model, Probes.at(map(batch.hook, range(batch.model.cfg.n_layers)))

    def moved(x: Tensor, hook: Any) -> Tensor:
        return x + share * (batch.mixed(x, batch.source.before(0), None) - x)

    with torch.enable_grad(), model.hooks(fwd_hooks=[(hook_names.resid_pre(0), moved), *probes.hooks()]):
        final = model(batch.base.x, stop_at_layer=model.cfg.n_layers)
        return probes.gradients(batch.of(final[None]).sum())
