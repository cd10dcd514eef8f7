"""The consistency of a head's pattern over texts, and the heads that have the same pattern.

With A_s `[query, key]` the pattern on sequence s, Ā_s its mean over the *other* sequences, and v_q the keys that query
q sees,

    consistency = 1 − Σ (A_s − Ā_s)² ÷ Σ (A_s − 1/v_q)²        over sequences, queries with v_q ≥ 2, and keys

1: the same on every text; 0: the texts' mean says no more of a pattern than uniform attention does; it may lie a little
below. A sink decides it otherwise: a head that mostly attends to position 0 is consistent in that. So it is also taken
without key 0: the other keys' attention divided by its sum, v_q − 1 for v_q, queries with v_q ≥ 3. Rows with less than
1e-3 of their attention off key 0 have no such pattern: they are left out of sums and means, and their share is told.

All of it comes from Σ_s A_s and Σ_s A_s²: with n sequences A_s − Ā_s = (n A_s − Σ A) ÷ (n − 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from aotlens.conventions import Head, Progress, all_heads, slices
from aotlens.heads.reader import HeadReader, Model, TokenSequences
from aotlens.results import Result, table, top_head

if TYPE_CHECKING:
    import pandas as pd

#: Attention off key 0 from which a row has a pattern without it.
LEAST_OFF_SINK = 1e-3
#: (A − 1/v)² a row below which a pattern is uniform, and has no consistency.
LEAST_NON_UNIFORM = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class PatternConsistency(Result):
    """The consistency of every head's pattern, 1 where it is the same on every text; NaN for a uniform one."""

    values: Float64[np.ndarray, "layer head"]
    without_first: Float64[np.ndarray, "layer head"]
    """The consistency of the patterns without key 0, each row rescaled to sum to 1."""
    left_out: Float64[np.ndarray, "layer head"]
    """The share of rows that `without_first` leaves out, since nearly all of their attention is on key 0."""
    n_sequences: int

    @property
    def headline(self) -> str:
        constant = "" if not np.isfinite(self.values).any() else f"most consistent {top_head(self.values)}"
        left_out = np.nanmax(self.left_out) if np.isfinite(self.left_out).any() else 0.0
        return f"{constant or 'uniform patterns'}; without key 0 up to {left_out:.1%} of rows are left out"

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per head: layer, head, pattern_consistency, without_first, left_out."""
        columns = {"pattern_consistency": self.values, "without_first": self.without_first, "left_out": self.left_out}
        return table(("layer", "head"), columns)


class ConsistencyTally:
    """Sums over sequences of up to `n_pos` positions, from patterns batch by batch: two patterns
    of every head are in memory.

    Queries at one position are compared, whatever the lengths of their sequences; NaN where they see later keys, and
    lengths differ.
    """

    def __init__(self, reader: HeadReader, n_pos: int) -> None:
        exact = torch.float32 if reader.device.type == "mps" else torch.float64  # MPS has no float64
        shape = (reader.n_layers, reader.n_heads, n_pos)
        self.visible = reader.visible_keys(n_pos).to(reader.device)
        self.n_sequences = 0
        self.whole = _Rows(torch.zeros(*shape, n_pos, dtype=exact, device=reader.device))
        self.rest = _Rows(torch.zeros(*shape, n_pos, dtype=exact, device=reader.device))
        self.n_heads = reader.n_heads
        self.is_comparable = True

    def add(self, layer: int, pattern: Float[Tensor, "batch head query key"]) -> None:
        if layer == 0:
            self.n_sequences += len(pattern)
        counted = torch.ones_like(pattern[..., 0])
        short = self.visible.shape[-1] - pattern.shape[-1]
        if short:  # the first queries of a causal model are the same whatever follows
            self.is_comparable = not bool(self.visible.triu(1).any())
            pattern, counted = F.pad(pattern, (0, short, 0, short)), F.pad(counted, (0, short))
        self.whole.add(layer, pattern, counted)
        rest = pattern.clone()
        rest[..., 0] = 0.0
        off_sink = rest.sum(-1)
        counted = (off_sink >= LEAST_OFF_SINK).to(pattern)
        self.rest.add(layer, rest * (counted / off_sink.clamp(min=LEAST_OFF_SINK))[..., None], counted)

    def result(self) -> PatternConsistency:
        others = self.visible.clone()
        others[..., 0] = False
        rows = (others.sum(-1) >= 2).expand_as(self.rest.counts[0])  # [head, query]: the queries that it counts
        counted_share = (self.rest.counts * rows).sum(-1) / (self.whole.counts * rows).sum(-1)
        unit = 1.0 if self.is_comparable else np.nan
        return PatternConsistency(
            values=self.whole.consistency(self.visible).numpy() * unit,
            without_first=self.rest.consistency(others).numpy() * unit,
            left_out=(1 - counted_share).cpu().double().numpy(),
            n_sequences=self.n_sequences,
        )


class _Rows:
    """Σ A, Σ A² and how many there are, row by row."""

    def __init__(self, sums: Tensor) -> None:
        self.sums = sums
        self.squares = torch.zeros_like(sums[..., 0])
        self.counts = torch.zeros_like(sums[..., 0])

    def add(self, layer: int, pattern: Tensor, counted: Float[Tensor, "batch head query"]) -> None:
        self.sums[layer] += pattern.sum(0).to(self.sums)
        self.squares[layer] += pattern.square().sum((0, 3)).to(self.sums)
        self.counts[layer] += counted.sum(0).to(self.sums)

    def consistency(self, visible: Tensor) -> Float64[Tensor, "layer head"]:
        sums, squares, n = (values.cpu().double() for values in (self.sums, self.squares, self.counts))
        visible = visible.cpu()
        v = visible.sum(-1).double()  # [mask, query]
        counted = (v >= 2) & (n >= 2)
        seen = sums * visible  # attention to hidden keys is 0
        others = (n.square() * squares - n * sums.square().sum(-1)) / (n - 1).clamp(min=1).square()
        uniform = squares - 2 * seen.sum(-1) / v.clamp(min=1) + n / v.clamp(min=1)
        rows = (n * counted).sum(-1)
        numerator, denominator = (torch.where(counted, values, 0.0).sum(-1) for values in (others, uniform))
        return torch.where(denominator > LEAST_NON_UNIFORM * rows, 1 - numerator / denominator, torch.nan)


def pattern_consistency(
    model: Model, tokens: TokenSequences, *, batch_size: int = 4, progress: Progress | None = None
) -> PatternConsistency:
    """Return how far every head's pattern is the same on all sequences of one length (as in `attention_to`).

    Definition at the head of this module. Memory: two patterns `[layer, head, pos, pos]` in float64, and a batch of one
    layer's. Raises `ValueError` for fewer than two sequences and for a model whose patterns cannot be read.
    """
    reader = HeadReader.of(model, "pattern consistency")
    tokens = reader.require_ids(tokens)
    if len(tokens) < 2:
        raise ValueError("pattern consistency needs at least 2 windows of text, got 1; give more tokens.")
    tally = ConsistencyTally(reader, tokens.shape[1])
    for rows in slices(len(tokens), batch_size, progress=progress):
        reader.listen_to_patterns(tokens[rows], tally.add)
    return tally.result()


@dataclass(frozen=True, kw_only=True, eq=False)
class RepeatedPatterns(Result):
    """Heads of some models, grouped by their patterns on the same sequences (*nonlinearity*, Figure 1)."""

    models: tuple[str, ...]
    heads: tuple[tuple[int, Head], ...]
    """(place of the model, head) of every head."""
    distances: Float64[np.ndarray, "head other"]
    """Jensen–Shannon distance, 0 to 1: √ of the divergence in bits, averaged over sequences and queries from the second
    on."""
    groups: Int64[np.ndarray, " head"]
    """The number of each head's group: 0 is the largest."""
    distance: float | int
    """The distance up to which groups were joined, by the mean distance between their heads."""

    def members(self, group: int) -> tuple[tuple[str, Head], ...]:
        """Return (model, head) of every head of a group."""
        return tuple(
            (self.models[place], head)
            for (place, head), number in zip(self.heads, self.groups, strict=True)
            if number == group
        )

    @property
    def headline(self) -> str:
        sizes = np.bincount(self.groups)
        repeated = int((sizes > 1).sum())
        return (
            f"{len(self.heads)} heads in {len(sizes)} groups, {repeated} of several heads, the largest of {sizes.max()}"
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a head: model, layer, head, group, size of the group, largest groups first."""
        import pandas as pd

        sizes = np.bincount(self.groups)
        rows = [
            {"model": self.models[place], "layer": head[0], "head": head[1], "group": group, "size": sizes[group]}
            for (place, head), group in zip(self.heads, self.groups.tolist(), strict=True)
        ]
        return pd.DataFrame(rows).sort_values("group", kind="stable", ignore_index=True)


@torch.no_grad()
def repeated_patterns(
    models: Sequence[Model],
    tokens: TokenSequences,
    *,
    names: Sequence[str] | None = None,
    distance: float | int = 0.2,
) -> RepeatedPatterns:
    """Group heads with the same pattern, across layers and models that read the same ids.

    Average linkage (scikit-learn's hierarchical clustering) on the Jensen–Shannon distance; two groups are joined while
    the mean distance between their heads is at most `distance`. `tokens` are a few sequences of one length (as in
    `attention_to`); `names` are those of the models, by default 0, 1, ….

    Time: O(heads² · sequences · pos²). Memory: the patterns of all heads on all sequences. Raises `ValueError` for no
    model or another number of names, for fewer than two heads or tokens, and where rows do not sum to 1 (φ).
    """
    if not models or (names is not None and len(names) != len(models)):
        raise ValueError(f"expected at least one model and a name for each, got {len(models)} and {len(names or ())}.")
    readers = [HeadReader.of(model, "repeated patterns") for model in models]
    ids = readers[0].require_ids(tokens, at_least=2)
    heads: list[tuple[int, Head]] = []
    patterns: list[Tensor] = []
    for place, reader in enumerate(readers):
        reader.require_ids(ids)
        reader.listen_to_patterns(
            ids, lambda _, pattern: patterns.extend(pattern[:, :, 1:].transpose(0, 1).double().cpu().flatten(1, 2))
        )
        heads += [(place, head) for head in all_heads(reader)]
    rows = torch.stack(patterns)  # [head, sequence · query, key]
    if len(rows) < 2:
        raise ValueError(f"expected at least two heads to compare, got {len(rows)}.")
    if (rows.sum(-1) - 1).abs().max() > 1e-3 or rows.min() < 0:
        raise ValueError("repeated patterns: expected patterns whose rows sum to 1, as softmax makes them.")
    return _grouped(rows, heads, tuple(names or map(str, range(len(models)))), distance)


def _grouped(
    rows: Tensor, heads: list[tuple[int, Head]], names: tuple[str, ...], distance: float | int
) -> RepeatedPatterns:
    from sklearn.cluster import AgglomerativeClustering

    entropy = torch.special.entr(rows).sum(-1)
    distances = np.zeros((len(rows), len(rows)))
    for i, j in combinations(range(len(rows)), 2):
        between = torch.special.entr((rows[i] + rows[j]) / 2).sum(-1) - (entropy[i] + entropy[j]) / 2
        bits = (between / np.log(2)).clamp(min=0, max=1)
        distances[i, j] = distances[j, i] = float(bits.sqrt().mean())
    clustering = AgglomerativeClustering(
        n_clusters=None, metric="precomputed", linkage="average", distance_threshold=np.nextafter(distance, np.inf)
    )
    labels = clustering.fit_predict(distances)
    order = np.argsort(-np.bincount(labels), kind="stable")
    return RepeatedPatterns(
        models=names,
        heads=tuple(heads),
        distances=distances,
        groups=np.argsort(order)[labels].astype(np.int64),
        distance=distance,
    )
