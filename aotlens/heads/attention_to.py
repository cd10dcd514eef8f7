"""The engine: how much of every head's attention goes where a motif would have it.

For a motif with targets T, the (query, key) pairs of its mask, and the n queries that count,

    score       (1/n) Σ_{(q, k) ∈ T} pattern[q, k]                    0 to 1 for softmax
    expected    (1/n) Σ_{(q, k) ∈ T} m(q − k),   m(δ) = the head's mean attention over all pairs at distance δ

A head that looks three tokens back finds many an open bracket there; only attention above `expected` speaks of
brackets. The two agree for a head whose pattern depends on distance alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from aotlens.conventions import Head, Progress
from aotlens.heads.inputs import Inputs, Missing
from aotlens.heads.motifs import MOTIFS, Motif, as_motifs
from aotlens.heads.reader import HeadReader, Model, TokenSequences
from aotlens.results import Result, top_head

if TYPE_CHECKING:
    import pandas as pd

MIXED = "mixed"


@dataclass(frozen=True, kw_only=True, eq=False)
class MotifScores(Result):
    """The score of every head for each motif: for motifs with a mask its mean attention there, 0 to 1 for softmax."""

    motifs: tuple[str, ...]
    """Names."""
    values: Float64[np.ndarray, "motif layer head"]
    """NaN for a motif that could not be measured."""
    n_queries: Int64[np.ndarray, " motif"]
    """Queries that each score is a mean over (sequences, for a score of the pattern alone)."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a motif is NaN, by its name."""
    expected: Float64[np.ndarray, "motif layer head"] | None = None
    """What the same distances get on average, whatever is there; None where it was not asked for."""
    start: int | None = None
    """The start token of the random sequences of `motif_scores`; None where there was none."""
    about: str = ""
    """What was read."""

    @property
    def headline(self) -> str:
        measured = [motif for motif in self.motifs if motif not in self.reasons]
        first = "induction" if "induction" in measured else measured[0] if measured else None
        return "no motif was measured" if first is None else f"{first} is highest in {top_head(self[first])}"

    def __getitem__(self, motif: str) -> Float64[np.ndarray, "layer head"]:
        if motif not in self.motifs:
            raise KeyError(f"{motif!r}: expected one of {', '.join(self.motifs)}")
        return self.values[self.motifs.index(motif)]

    def best(self, motif: str) -> tuple[Head, float] | None:
        """The head with the highest score, and that score; None for a motif that could not be measured."""
        scores = self[motif]
        if not np.isfinite(scores).any():
            return None
        layer, head = np.unravel_index(int(np.nanargmax(scores)), scores.shape)
        return (int(layer), int(head)), float(scores[layer, head])

    def labels(self, threshold: float | None = None) -> list[list[str]]:
        """For each layer and head the motif with its highest score among those that reach `threshold`, or "mixed".

        None takes each motif's own threshold.
        """
        own = np.array([MOTIFS[name].threshold if name in MOTIFS else Motif.threshold for name in self.motifs])
        reached = self.values >= (own[:, None, None] if threshold is None else threshold)
        highest = np.where(reached, self.values, -np.inf).argmax(0)
        return np.where(reached.any(0), np.array(self.motifs)[highest], MIXED).tolist()

    def to_frame(self) -> pd.DataFrame:
        """One row a head: layer, head, and a column a motif."""
        import pandas as pd

        layers, heads = np.indices(self.values.shape[1:])
        columns = {motif: self[motif].ravel() for motif in self.motifs}
        return pd.DataFrame({"layer": layers.ravel(), "head": heads.ravel(), **columns})


def attention_to(
    model: Model,
    inputs: Inputs | TokenSequences,
    motifs: Iterable[str | Motif] | str | Motif | None = None,
    *,
    by_distance: bool = False,
    batch_size: int = 8,
    progress: Progress | None = None,
) -> MotifScores:
    """Score every head for `motifs` (names or `Motif`s; all of `MOTIFS` for None) on sequences of one length.

    `inputs` are ids `[batch, pos]`, a text, texts of equally many tokens, or `Inputs`, which say more of the sequences.
    `by_distance` adds `expected`. A motif is NaN, with the reason in `reasons`, where the inputs lack what it needs or
    no query sees such a key. `progress(done, total)` is called after each batch. Memory: one layer's patterns, and a
    mask a motif, for `batch_size` sequences. Raises `ValueError` for a model that does not read tokens or shows no
    patterns, for ids that it does not have and for an unknown motif.
    """
    reader, chosen = HeadReader.of(model, "attention to motifs"), as_motifs(motifs)
    inputs = inputs if isinstance(inputs, Inputs) else Inputs.of(reader, inputs)
    n_pos = inputs.n_pos
    totals = torch.zeros(len(chosen), reader.n_layers, reader.n_heads, dtype=torch.float64)
    n_queries = torch.zeros(len(chosen), dtype=torch.int64)
    offset = (torch.arange(n_pos)[:, None] - torch.arange(n_pos) + n_pos - 1).flatten()  # query − key, from 0 on
    by_offset = torch.zeros(reader.n_layers, reader.n_heads, 2 * n_pos - 1, dtype=torch.float64)
    targets_by_offset = torch.zeros(len(chosen), 2 * n_pos - 1, dtype=torch.float64)
    reasons: dict[str, str] = {}
    for start in range(0, len(inputs), batch_size):
        batch = inputs[start : start + batch_size]
        masks, counts = _masks(chosen, batch, reasons)
        n_queries += counts
        targets_by_offset.index_add_(1, offset, masks.sum(1).flatten(1).double())
        weights = masks.flatten(2).permute(1, 2, 0).to(reader.device)  # [batch, query · key, motif]

        def add(layer: int, pattern: Tensor, weights: Tensor = weights) -> None:
            sums = torch.bmm(pattern.flatten(2), weights.to(pattern)).sum(0)  # [head, motif]
            totals[:, layer] += sums.T.double().cpu()
            for index, motif in enumerate(chosen):
                if motif.score is not None:
                    totals[index, layer] += motif.score(pattern).sum(0).double().cpu()
            if by_distance:
                by_offset[layer].index_add_(1, offset, pattern.sum(0).flatten(1).double().cpu())

        reader.listen_to_patterns(batch.tokens, add)
        if progress is not None:
            progress(start + len(batch), len(inputs))
    for motif, n in zip(chosen, n_queries.tolist(), strict=True):
        if n == 0:
            reasons.setdefault(motif.name, "no query of these sequences sees such a key")
    divisor = torch.where(n_queries > 0, n_queries.double(), torch.nan)[:, None, None]
    n_pairs = len(inputs) * (n_pos - torch.arange(1 - n_pos, n_pos).abs())
    expected = torch.einsum("lho,mo->mlh", by_offset / n_pairs, targets_by_offset) / divisor
    return MotifScores(
        motifs=tuple(motif.name for motif in chosen),
        values=(totals / divisor).numpy(),
        n_queries=n_queries.numpy(),
        reasons=reasons,
        expected=expected.numpy() if by_distance else None,
    )


def _masks(
    motifs: Sequence[Motif], batch: Inputs, reasons: dict[str, str]
) -> tuple[Bool[Tensor, "motif batch query key"], Int64[Tensor, " motif"]]:
    """The pairs of each motif and how many queries (or sequences) its mean is over; adds why one has none."""
    masks = torch.zeros(len(motifs), len(batch), batch.n_pos, batch.n_pos, dtype=torch.bool)
    counts = torch.zeros(len(motifs), dtype=torch.int64)
    for index, motif in enumerate(motifs):
        if motif.mask is None:
            counts[index] = len(batch)
            continue
        try:
            keys, queries = motif.mask(batch)
        except Missing as error:
            reasons[motif.name] = str(error)
            continue
        masks[index] = keys & queries[..., None]
        counts[index] = queries.sum()
    return masks, counts
