"""Edges of a model's graph between a clean and a corrupted prompt: path patching, its estimate, a circuit's worth.

Edges and what a receiver reads are those of `aotlens.paths.wiring`. With "denoising" the corrupted prompt runs and an
edge carries what its sender writes on the clean one; with "noising" it is the other way round. What an edge into a head
brings goes on from there to everything that reads the head.

    estimate of an edge s → r  =  ⟨other(s) − own(s), mean over steps of ∂m/∂(what r reads)⟩

edge attribution patching (Syed et al. 2023), with integrated gradients (Hanna et al. 2024).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from aotlens.conventions import HeadLike, Progress, as_head, require_choice, require_whole
from aotlens.data.pairs import PromptPairs
from aotlens.models import AttentionOnlyTransformer, hook_names, require_ours
from aotlens.patching.both import (
    DIRECTIONS,
    BothRuns,
    Estimates,
    OverPairs,
    estimate_and_check,
    numbers,
    over_pairs,
    require_slope,
)
from aotlens.patching.metrics import PairMetric, batches, checked_metric, checked_positions, require_fit
from aotlens.paths import Edge, EdgeLike, Wires
from aotlens.paths.runs import require_bare
from aotlens.paths.wiring import Wired

if TYPE_CHECKING:
    import pandas as pd

#: Numbers that the streams of one batch of rows may hold.
_MOST_NUMBERS = 30_000_000


@dataclass(frozen=True, kw_only=True, eq=False)
class PatchedEdges(OverPairs):
    """A metric of each pair with edges patched, each by itself or all together, and without."""

    edges: tuple[Edge, ...]
    together: bool
    """Whether all of them were patched at once, so that `each` has one column."""
    direction: str
    metric: str
    unit: str
    each: Float64[np.ndarray, "pair edge"]
    clean: Float64[np.ndarray, " pair"]
    corrupted: Float64[np.ndarray, " pair"]
    positions: tuple[int, ...] | None
    """The positions at which edges were patched; None: all."""
    clusters: tuple[str, ...] | None = None

    @property
    def headline(self) -> str:
        (place,), verb, share = self._largest()
        if self.together:
            return f"{self.direction} {len(self.edges)} edges at once: {share}"
        return f"{self.direction} edges: {self.edges[place]} {verb} ({share})"

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per edge (one for all if they were patched together): source, destination, mean,
        restored, and its interval, low and high, for more than one pair."""
        import pandas as pd

        ends = [("all", "all")] if self.together else list(self.edges)
        return self._with_values(pd.DataFrame(ends, columns=["source", "destination"]))


@dataclass(frozen=True, kw_only=True, eq=False)
class EdgeAttribution(Estimates):
    """The estimated effect of every edge, and the exact one of those with the largest estimates; means over pairs."""

    edges: tuple[Edge, ...]
    direction: str
    metric: str
    unit: str
    steps: int
    estimate: Float64[np.ndarray, " edge"]
    """The estimated change of the metric when the edge is patched."""
    checked: Int64[np.ndarray, " checked"]
    """Indices of the edges that were patched, the largest estimate first."""
    exact: Float64[np.ndarray, " checked"]
    """The change of the metric when each of them is patched."""

    @property
    def headline(self) -> str:
        return self._quality("edges", lambda number: str(self.edges[self.checked[number]]))

    def to_frame(self) -> pd.DataFrame:
        """Return one row an edge, the largest estimate first: source, destination, estimate, exact (missing where it
        was not patched)."""
        import pandas as pd

        frame = pd.DataFrame(list(self.edges), columns=["source", "destination"]).assign(estimate=self.estimate)
        exact = np.full(len(frame), np.nan)
        exact[self.checked] = self.exact
        return frame.assign(exact=exact).sort_values(
            "estimate", key=abs, ascending=False, kind="stable", ignore_index=True
        )


@torch.no_grad()
def path_patch(
    model: AttentionOnlyTransformer,
    pairs: PromptPairs,
    edges: Iterable[EdgeLike] | str | None = None,
    metric: str | PairMetric = "logit_difference",
    *,
    head: HeadLike | None = None,
    direction: str = "denoising",
    together: bool = False,
    positions: Iterable[int] | np.ndarray | None = None,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> PatchedEdges:
    """Put what one edge carries on the other prompt into the run (path patching), one edge at a time, or all
    `together`.

    `edges` are such as "0.1 → 1.0.k", "embed → 0.0.v", "mlp 0 → logits" (None: all of the model's); with `head` only
    those from it and to it. `positions` are those of the receiver's stream at which they are patched (None: all). The
    sender writes as on the other prompt, all other edges as in the run, and what the receiver does with it goes on
    through the full model: with one edge that is direct path patching (Wang et al. 2022), with all of them together
    the other prompt.

    `progress(done, total)` counts pairs. Raises `ValueError` if an edge does not exist, for pairs whose prompts are
    of different lengths, positions that a prompt has not, and as `patch`.
    """
    measure = checked_for_edges(model, metric, direction)
    require_whole("batch_size", batch_size, 1)
    wires = Wires.of(model)
    edges = [edges] if isinstance(edges, str) else edges
    named = wires.edges if edges is None else tuple(dict.fromkeys(map(wires.edge, edges)))
    if head is not None:
        name = "{}.{}".format(*as_head(head, model.cfg))
        named = tuple(edge for edge in named if name in (edge.source, edge.receiver[0]))
    if not named:
        raise ValueError("path_patch: expected at least one edge, got none.")
    patched = wires.mask(named)[None] if together else torch.stack([wires.mask([edge]) for edge in named])
    places = None if positions is None else checked_positions(positions, pairs, direction)
    parts = edge_batches(model, pairs, measure, direction, batch_size)
    fields = over_pairs(parts, lambda batch, rows: batch.values(~patched, places).T, pairs, progress=progress)
    return PatchedEdges(edges=named, together=together, direction=direction, positions=places, **fields)


def attribute_edges(
    model: AttentionOnlyTransformer,
    pairs: PromptPairs,
    metric: str | PairMetric = "logit_difference",
    *,
    direction: str = "denoising",
    steps: int = 5,
    check: int = 20,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> EdgeAttribution:
    """Estimate what patching each edge would do, of all edges at once, and patch the `check` largest.

    `steps` > 1 integrates the gradient over that many inputs between the two prompts. Cost without the check: two
    forward passes, and `steps` forward and backward ones in which every receiver reads a stream of its own.

    Raises `ValueError` as `path_patch`, for steps or check below 1, and for a metric without a gradient.
    """
    measure = checked_for_edges(model, metric, direction)
    require_slope(measure, direction, steps)
    for name, count in (("steps", steps), ("check", check), ("batch_size", batch_size)):
        require_whole(name, count, 1)
    wires = Wires.of(model)
    with torch.no_grad():
        all_batches = [batch for batch, _ in edge_batches(model, pairs, measure, direction, batch_size)]

    def patched(batch: EdgeBatch, places: Int64[np.ndarray, "checked 1"]) -> np.ndarray:
        return batch.values(~torch.stack([wires.mask([wires.edges[place]]) for place in places[:, 0]]))

    fields = estimate_and_check(
        all_batches, lambda batch: batch.estimates(steps)[wires.exists.numpy()], patched, check, progress=progress
    )
    fields["checked"] = fields["checked"][:, 0]
    return EdgeAttribution(edges=wires.edges, direction=direction, steps=steps, **fields)


def edge_batches(
    model: AttentionOnlyTransformer, pairs: PromptPairs, metric: str | PairMetric, direction: str, batch_size: int
) -> Iterator[tuple[EdgeBatch, list[int]]]:
    """Yield batches of pairs of one length, and which pairs they are. Raises `ValueError` for pairs whose two prompts
    have different lengths."""
    for number, pair in enumerate(pairs, start=1):
        if len(pair.clean) != len(pair.corrupted):
            raise ValueError(
                f"pair {number}: expected two prompts of one length for edges, got {len(pair.clean)} and "
                f"{len(pair.corrupted)} positions; patch heads (aotlens.patching.patch), which align what corresponds."
            )
    for rows in batches(pairs, batch_size):
        yield EdgeBatch(model, pairs.at(rows), metric, direction), rows


def checked_for_edges(model: AttentionOnlyTransformer, metric: str | PairMetric, direction: str) -> str | PairMetric:
    """Return the metric as `checked_metric` does. Raises `ValueError` for models, metrics and directions that edges
    cannot be patched with."""
    require_ours(model, "path_patch", without=("norm_after", "norm_output"))
    require_bare(model, "path_patch")
    require_choice("direction", direction, DIRECTIONS)
    require_fit(model, metric)
    return checked_metric(metric)


class EdgeBatch(BothRuns):
    """Pairs of one length whose edges are patched: `base` runs, and edges that are not kept carry the `source`'s."""

    def __init__(
        self, model: AttentionOnlyTransformer, pairs: PromptPairs, metric: str | PairMetric, direction: str
    ) -> None:
        super().__init__(model, pairs, metric, direction, [hook_names.Z])
        self.wired = Wired(self.base, self.source)

    def values(
        self, kept: Bool[Tensor, "set receiver sender"], positions: tuple[int, ...] | None = None
    ) -> Float64[np.ndarray, "set pair"]:
        """Return the metric with each set of edges kept; with `positions`, all edges are kept at all others."""
        wired, cfg = self.wired, self.model.cfg
        n_pos, start = self.base.final.shape[1], wired.start
        if positions is not None:
            elsewhere = torch.ones(n_pos, dtype=torch.bool)
            elsewhere[list(positions)] = False
            kept = kept[..., None] | elsewhere[start:]
        numel = len(self.pairs) * (n_pos - start) * cfg.d_model
        of_layer = len(wired.wires.senders) + 4 * cfg.n_heads
        at_once = max(1, _MOST_NUMBERS // (numel * of_layer))
        return np.concatenate([numbers(self.of(wired.final(rows))) for rows in kept.split(at_once)])

    @torch.no_grad()
    def estimates(self, steps: int) -> Float64[np.ndarray, "receiver sender"]:
        """Return the mean over pairs of ⟨source's − base's, gradient of what the receiver reads⟩."""
        wired = self.wired
        differences = -wired.differences.flatten(1)  # [sender, pair · pos · d_model]
        estimates = torch.zeros(len(wired.wires.receivers), len(differences), dtype=torch.float64)
        for step in range(steps):
            reads: list[Tensor] = []
            share = 1.0 if steps == 1 else 1 - (step + 0.5) / steps
            with torch.enable_grad():
                total = self.of(wired.final(wired.wires.exists[None], share=share, reads=reads)).sum()
                if not total.requires_grad:
                    raise ValueError("edges: the metric has no gradient, so it cannot be estimated; use path_patch.")
                gradients = torch.autograd.grad(total, reads, allow_unused=True)
            rows = [
                torch.zeros_like(read) if gradient is None else gradient
                for read, gradient in zip(reads, gradients, strict=True)
            ]
            gradient = torch.cat([row[0].detach().flatten(1) for row in rows])  # [receiver, pair · pos · d_model]
            estimates += (gradient @ differences.T).cpu().double() / steps
        return np.where(wired.wires.exists.numpy(), estimates.numpy() / len(self.pairs), 0.0)
