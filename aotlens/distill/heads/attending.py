"""The targets of each distilled head's attention on held-out text, and how much its pattern depends on that text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float64, Int64
from torch import Tensor

from aotlens.conventions import Head
from aotlens.heads import MotifScores, attention_to, pattern_consistency
from aotlens.heads.reader import HeadReader
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class Attending(Result):
    """The motifs and the pattern consistency of the heads of a distillation, in the order of `heads`."""

    heads: tuple[Head, ...]
    scores: MotifScores
    """The scores of all heads of the model, for every motif that was known when they were measured."""
    pattern_consistency: Float64[np.ndarray, " head"]
    """1 where the pattern is the same on every text (`aotlens.heads.pattern_consistency`, key 0 with the others); NaN
    for uniform attention."""

    def to(self, motif: str) -> Float64[np.ndarray, " head"]:
        """Return mean attention to a motif's keys; NaN for a motif that was not measured."""
        if motif not in self.scores.motifs:
            return np.full(len(self.heads), np.nan)
        layers, heads = np.array(self.heads).T
        return self.scores[motif][layers, heads]

    def why_not(self, motif: str) -> str | None:
        """Return the reason why a motif is NaN here; None where it was measured."""
        if motif not in self.scores.motifs:
            return "the distillation was made before that motif was known"
        return self.scores.reasons.get(motif)

    @property
    def attends(self) -> tuple[str, ...]:
        """The motif that each head attends to most on this text, `mixed` where nothing stands out
        (`MotifScores.labels`).

        What a head is called is `aotlens.heads.head_labels`' to say, which reads random repeats beside text."""
        labels = self.scores.labels()
        return tuple(labels[layer][head] for layer, head in self.heads)

    def to_frame(self) -> pd.DataFrame:
        """Return layer, head, a column a motif, pattern_consistency, attends."""
        import pandas as pd

        frame = pd.DataFrame(self.heads, columns=["layer", "head"]).merge(self.scores.to_frame(), how="left")
        return frame.assign(pattern_consistency=self.pattern_consistency, attends=self.attends)


def attending(
    reader: HeadReader, heads: tuple[Head, ...], windows: Int64[Tensor, "windows pos"], *, batch_size: int = 4
) -> Attending:
    """Measure where heads attend, in two passes of the model. Memory: two patterns `[pos, pos]` of every head in
    float64, and a

    Raises `ValueError` for fewer than two windows, and for a bridge whose attention computes no patterns.
    """
    layers, numbers = np.array(heads).T
    consistency = pattern_consistency(reader.model, windows, batch_size=batch_size).values[layers, numbers]
    scores = attention_to(reader.model, windows, others=True, batch_size=batch_size)
    return Attending(heads=heads, scores=scores, pattern_consistency=consistency)
