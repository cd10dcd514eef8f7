"""Sets of edges, each measured once, and the search for a small one that is enough, for `find_circuit`."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from aotlens.conventions import Progress
from aotlens.data.pairs import PromptPairs
from aotlens.models import AttentionOnlyTransformer
from aotlens.patching.both import require_difference
from aotlens.patching.edges import EdgeBatch, edge_batches
from aotlens.patching.metrics import PairMetric, name_of
from aotlens.paths import Wires
from aotlens.statistics import as_clusters, mean_interval, ratio_intervals

CONFIDENCE = 0.95
#: The confidence of the interval whose lower end is to reach `keep` on the searched pairs, so that it is reached on
#: others too: 80% of them from one side.
SEARCH_CONFIDENCE = 0.6


class Sets:
    """The metric of the clean prompts with only some edges left, each set once."""

    def __init__(
        self, model: AttentionOnlyTransformer, pairs: PromptPairs, metric: str | PairMetric, batch_size: int,
        *, progress: Progress | None = None,
    ) -> None:  # fmt: skip
        self.pairs, self.metric, self.dtype, self.progress = pairs, metric, model.dtype, progress
        self.parts: list[tuple[EdgeBatch, list[int]]] = list(edge_batches(model, pairs, metric, "noising", batch_size))
        self.wires = Wires.of(model)
        self.clusters: Int64[np.ndarray, " pair"] | None = as_clusters(pairs.clusters, len(pairs), "pairs")
        self._known: dict[bytes, np.ndarray] = {}
        self.expected = 1
        self.whole, self.empty = self.numbers([self.wires.exists, torch.zeros_like(self.wires.exists)])

    @property
    def n_runs(self) -> int:
        return len(self._known)

    def numbers(self, sets: list[Bool[Tensor, "receiver sender"]]) -> Float64[np.ndarray, "set pair"]:
        """Return the metric of each pair with each set of edges."""
        keys = [mask.numpy().tobytes() for mask in sets]
        new = {key: mask for key, mask in zip(keys, sets, strict=True) if key not in self._known}
        if new:
            values = np.zeros((len(new), len(self.pairs)))
            for batch, rows in self.parts:
                values[:, rows] = batch.values(torch.stack(list(new.values())))
            self._known.update(zip(new, values, strict=True))
            if self.progress is not None:
                self.expected = max(self.expected, self.n_runs)
                self.progress(self.n_runs, self.expected)
        return np.stack([self._known[key] for key in keys])

    def faithfulness(self, sets: list[Bool[Tensor, "receiver sender"]]) -> list[float]:
        """Return F of each set."""
        change = float((self.whole - self.empty).mean())
        return [float(value) for value in (self.numbers(sets) - self.empty).mean(1) / change]

    def sure(self, sets: list[Bool[Tensor, "receiver sender"]]) -> Float64[np.ndarray, " set"]:
        """Return the lower end of the interval of each set's F at `SEARCH_CONFIDENCE`; F itself where there is none."""
        low = self.intervals(sets, SEARCH_CONFIDENCE)[:, 0]
        return np.where(np.isnan(low), self.faithfulness(sets), low)

    def intervals(self, sets: list[Bool[Tensor, "receiver sender"]], confidence: float) -> Float64[np.ndarray, "set 2"]:
        """Return the intervals of each set's F."""
        whole = self.whole - self.empty
        sign = np.sign(whole.mean())
        return ratio_intervals(
            sign * (self.numbers(sets) - self.empty), sign * whole, self.clusters, confidence=confidence
        )

    def estimates(self, steps: int) -> Float64[np.ndarray, "receiver sender"]:
        """Estimate the cost of leaving each edge out by attribution, over pairs."""
        parts = [len(rows) / len(self.pairs) * batch.estimates(steps) for batch, rows in self.parts]
        return -np.sum(parts, 0)

    def require_effect(self, which: str, *, tested: bool = True) -> None:
        """Raise `ValueError` where the corrupted prompts change nothing, or (`tested`) nothing that can be told from 0
        over several pairs."""
        rounding = np.zeros(len(self.pairs))
        for batch, rows in self.parts:
            rounding[rows] = batch.rounding()
        require_difference(np.stack([self.whole, self.empty], 1), rounding, self.metric, self.dtype)
        change = self.whole - self.empty
        low, high = mean_interval(change, self.clusters, confidence=CONFIDENCE)
        if tested and low <= 0 <= high:
            raise ValueError(
                f"find_circuit: expected clean and corrupted prompts to differ in {name_of(self.metric)}; they do by "
                f"{change.mean():.4g} ± {(high - low) / 2:.2g} over {len(change)} {which} pairs, so that there is "
                "nothing to be faithful to; give other pairs, more of them, or another metric."
            )


class Search:
    """The search for a set, by exact values on the searched pairs; edges are ordered by their attribution."""

    def __init__(self, sets: Sets, estimate: Float64[np.ndarray, "receiver sender"], keep: float | int) -> None:
        self.sets, self.wires, self.keep = sets, sets.wires, keep
        places = sets.wires.exists.nonzero().numpy()
        order = np.argsort(-np.abs(estimate[tuple(places.T)]), kind="stable")
        self.places = torch.from_numpy(places[order])
        """The edges, the largest attribution first."""

    def enough(self, kept: Bool[Tensor, "receiver sender"]) -> bool:
        """Return whether a set is as faithful as is asked."""
        return bool(self._enough([kept])[0])

    def _enough(self, sets: list[Bool[Tensor, "receiver sender"]]) -> Bool[np.ndarray, " set"]:
        """Whether each surely reaches `keep`, and goes no farther beyond the full model than `keep` lies below it."""
        beyond = np.array(self.sets.faithfulness(sets)) > 2 - self.keep
        return (self.sets.sure(sets) >= self.keep) & ~beyond

    def first(self, n: int) -> Bool[Tensor, "receiver sender"]:
        """Return the n edges with the largest attribution, those of them that are connected."""
        mask = torch.zeros_like(self.wires.exists)
        mask[tuple(self.places[:n].T)] = True
        return self.wires.connected(mask)

    def forward(self) -> Bool[Tensor, "receiver sender"]:
        """Find as few of the largest as reach `keep`: the first such number of a growing series, then halving."""
        low, high, n = 0, 1, len(self.places)
        while high < n and not self.enough(self.first(high)):
            low, high = high, max(high + 1, int(1.4 * high))
        high = min(high, n)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.enough(self.first(middle)) else (middle, high)
        return self.first(high)

    def backward(self) -> Bool[Tensor, "receiver sender"]:
        """Return all edges less those with the smallest attribution: half of them are removed at a time, where that is
        too much half of that, and so on."""
        mask = self.wires.exists.clone()
        left = self.places.flip(0)
        size = max(1, len(left) // 2)
        while len(left):
            part, rest = left[:size], left[size:]
            fewer = self._less(mask, part)
            if self.enough(fewer):
                mask, left = fewer, rest
            elif size == 1:
                left = rest  # this one stays
            else:
                size = (size + 1) // 2
        return mask

    def least(self, kept: Bool[Tensor, "receiver sender"]) -> Bool[Tensor, "receiver sender"]:
        """Return the set without the edges whose removal costs least, as many at a time as possible, until every
        remaining edge is needed."""
        while kept.any():
            places = kept.nonzero()
            fewer_sets = [self._less(kept, place[None]) for place in places]
            shares, enough = self.sets.sure(fewer_sets), self._enough(fewer_sets)
            self.sets.expected = self.sets.n_runs + len(places)
            order = np.argsort(np.where(enough, -shares, np.inf), kind="stable")[: int(enough.sum())]
            if not len(order):
                break
            size = max(1, len(order) // 2)
            while not self.enough(fewer := self._less(kept, places[order[:size]])):
                size //= 2  # one alone is enough, as was seen
            kept = fewer
        return kept

    def _less(
        self, mask: Bool[Tensor, "receiver sender"], places: Int64[Tensor, "edge end"]
    ) -> Bool[Tensor, "receiver sender"]:
        """A set without some edges, and without the edges that these connected."""
        fewer = mask.clone()
        fewer[tuple(places.T)] = False
        return self.wires.connected(fewer)
