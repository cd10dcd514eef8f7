"""The ablation of each of a model's heads, one by one: what the model loses without it.

For a head of layer l only the layers from l on are computed again, from the stream that the clean pass left before l:
for L layers about half of what `ablate` would cost head by head.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.conventions import Head, HeadLike, Progress, as_heads
from aotlens.heads.ablation import Measure, Metric, measured, unit_of
from aotlens.heads.replacement import Batch, Replacement
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.results import Result
from aotlens.statistics import as_clusters, ratio_intervals

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class EachHead(Result):
    """A number for each sequence, with all heads and without each one alone."""

    heads: tuple[Head, ...]
    how: str
    """The replacement of a head's output (`aotlens.heads.ablation`)."""
    unit: str
    clean: Float64[np.ndarray, " sequence"]
    ablated: Float64[np.ndarray, "head sequence"]
    clusters: Int64[np.ndarray, " sequence"] | None = None
    """The clusters as in `Ablation`."""
    higher_is_better: bool | None = False
    """Whether the model does better the higher the numbers are; None for a measure that does not declare it
    (`aotlens.heads.ablation.Metric`)."""

    @property
    def changes(self) -> Float64[np.ndarray, " head"]:
        """The mean change by leaving out each head, every sequence counting once."""
        return (self.ablated - self.clean).mean(1)

    def intervals(self, confidence: float = 0.95) -> Float64[np.ndarray, "head 2"]:
        """Return the intervals of `changes`, as `Ablation.interval`."""
        differences = self.ablated - self.clean
        return ratio_intervals(differences, np.ones(differences.shape[1]), self.clusters, confidence=confidence)

    @property
    def harm(self) -> Float64[np.ndarray, " head"]:
        """`changes` signed so that the head that is missed most has the largest; their size, where no direction is
        declared."""
        return np.abs(self.changes) if self.higher_is_better is None else self.changes * (1 - 2 * self.higher_is_better)

    @property
    def headline(self) -> str:
        top = int(self.harm.argmax())
        layer, head = self.heads[top]
        what = "changes it most" if self.higher_is_better is None else "is missed most"
        return f"{self.how}: head {layer}.{head} {what} ({self.changes[top]:+.4f} {self.unit})"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a head: layer, head, change, low, high."""
        import pandas as pd

        low, high = self.intervals().T
        layers, heads = np.array(self.heads).T
        return pd.DataFrame({"layer": layers, "head": heads, "change": self.changes, "low": low, "high": high})


@torch.no_grad()
def ablate_each(
    model: AttentionOnlyTransformer,
    inputs: Tensor | str | list[str],
    how: str = "zero",
    *,
    heads: HeadLike | Iterable[HeadLike] | None = None,
    targets: Tensor | None = None,
    metric: Metric | Measure | None = None,
    attention_mask: Tensor | None = None,
    reference: Tensor | str | list[str] | None = None,
    clusters: Iterable[Hashable] | None = None,
    seed: int = 0,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> EachHead:
    """Measure what `ablate` does for each of `heads` (all for None) alone, without computing earlier layers again.

    Arguments are those of `ablate`. Time: the clean passes of one `ablate`, and for each head a pass through the layers
    from its own on. Memory: the stream before every layer, and what stands for every head, of `batch_size` sequences.
    `progress(done, total)` counts runs of a head on a batch. Raises `ValueError` as `ablate`.
    """
    require_ours(model, "ablate_each")
    batch = Batch.of(model, inputs, attention_mask, targets)
    everything = [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]
    groups = as_clusters(clusters, len(batch))
    chosen = tuple(everything) if heads is None else tuple(sorted(as_heads(heads, model.cfg)))
    others = None if reference is None else Batch.of(model, reference)
    replacement = Replacement(model, chosen, how, batch, others, seed=seed, batch_size=batch_size)
    clean: list[np.ndarray] = []
    ablated: list[list[np.ndarray]] = [[] for _ in chosen]
    done, total = 0, len(chosen) * -(-len(batch) // batch_size)
    for start in range(0, len(batch), batch_size):
        rows = slice(start, start + batch_size)
        part = batch[rows]
        logits, given, streams = replacement.clean(part, rows, streams=True)
        clean.append(measured(model, logits, part, start, metric)[0])
        for place, head in enumerate(chosen):
            logits = replacement.replaced(part, given, (head,), start=(head[0], streams[head[0]]))
            ablated[place].append(measured(model, logits, part, start, metric)[0])
            done += 1
            if progress is not None:
                progress(done, total)
    return EachHead(
        heads=chosen,
        how=how,
        unit=unit_of(model, metric),
        clean=np.concatenate(clean),
        ablated=np.stack([np.concatenate(parts) for parts in ablated]),
        clusters=groups,
        higher_is_better=False if metric is None else getattr(metric, "higher_is_better", None),
    )
