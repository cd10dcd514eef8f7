"""A measure of the model with only some heads left: what sets of heads do, each computed once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.conventions import Head, Progress
from aotlens.heads.ablation import Measure, Metric, measured
from aotlens.heads.replacement import Batch, Replacement
from aotlens.models import AttentionOnlyTransformer
from aotlens.models.rounding import are_alike, rounding_of
from aotlens.statistics import ratio_intervals

Kept: TypeAlias = frozenset[Head]


class HeadSets:
    """The measure of the model with only some heads left, each set once."""

    clusters: Int64[np.ndarray, " sequence"] | None = None

    def __init__(
        self,
        model: AttentionOnlyTransformer,
        heads: list[Head],
        batch: Batch,
        reference: Batch | None,
        how: str,
        metric: Metric | Measure | None,
        seed: int,
        batch_size: int,
        *,
        total: int = 0,
        progress: Progress | None = None,
    ) -> None:
        """`progress(done, total)` counts sets, of which there are at most `total`."""
        self.model, self.metric, self.heads, self.total = model, metric, frozenset(heads), total
        self.progress = progress
        self.replacement = Replacement(model, heads, how, batch, reference, seed=seed, batch_size=batch_size)
        self.parts: list[tuple[Batch, dict[int, Tensor]]] = []
        whole: list[np.ndarray] = []
        for start in range(0, len(batch), batch_size):
            rows = slice(start, start + batch_size)
            part = batch[rows]
            logits, given, _ = self.replacement.clean(part, rows)
            self.parts.append((part, {layer: value.to(model.device, model.dtype) for layer, value in given.items()}))
            whole.append(measured(model, logits, part, start, metric)[0])
        self._known: dict[Kept, np.ndarray] = {self.heads: np.concatenate(whole)}

    @property
    def n_runs(self) -> int:
        return len(self._known)

    def numbers(self, kept: Kept) -> Float64[np.ndarray, " sequence"]:
        """Compute the measure of each sequence with all heads but `kept` replaced."""
        if kept not in self._known:
            replaced, start = self.heads - kept, 0
            numbers: list[np.ndarray] = []
            for part, given in self.parts:
                logits = self.replacement.replaced(part, given, replaced)
                numbers.append(measured(self.model, logits, part, start, self.metric)[0])
                start += len(part)
            self._known[kept] = np.concatenate(numbers)
            if self.progress is not None:
                self.progress(self.n_runs, self.total)
        return self._known[kept]

    def _effects(self, kept: Kept) -> np.ndarray:
        return self.numbers(kept) - self.numbers(frozenset())

    def all_do_nothing(self) -> bool:
        """Return whether the measure is the same with all heads replaced, but for the rounding of logits. Cost: a run
        and its measure nine times."""
        rounding, start, dtype = [], 0, self.model.dtype
        for part, given in self.parts:

            def measure(logits: Tensor, part: Batch = part, start: int = start) -> np.ndarray:
                return measured(self.model, logits, part, start, self.metric)[0]

            rounding.append(rounding_of(measure, self.replacement.replaced(part, given, self.heads), dtype))
            start += len(part)
        ends = np.stack([self.numbers(self.heads), self.numbers(frozenset())], 1)
        return are_alike(ends, np.concatenate(rounding), dtype)

    def faithfulness(self, kept: Kept) -> float:
        return float(self._effects(kept).mean() / self._effects(self.heads).mean())

    def intervals(self, sets: Sequence[Kept], confidence: float) -> Float64[np.ndarray, "set 2"]:
        """Return the intervals of the faithfulness of each set."""
        whole = self._effects(self.heads)
        sign = np.sign(whole.mean())
        effects = np.array([sign * self._effects(each) for each in sets]).reshape(len(sets), len(whole))
        return ratio_intervals(effects, sign * whole, self.clusters, confidence=confidence)

    def best(self, sets: Iterable[Kept]) -> Kept:
        """Return the most faithful of some sets; among equals the first."""
        return max(sets, key=self.faithfulness)
