"""Examples of a head's attention in the text, from little to much: of every degree, from one pass over a corpus.

Of a query, what its attention has away from the sink is 1 − A[query, 0]. That is cut in ten equal bins, [0, .1) to
[.9, 1]; of each head and bin a few queries are kept, each as likely as every other one (a reservoir, seeded): every
query of every sequence has a random number of its own, and the queries with the smallest stay. So what is kept depends
neither on the order nor on the size of batches, and memory not on the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from aotlens.conventions import HeadLike, as_head, require_whole
from aotlens.heads.reader import HeadReader
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

N_BINS = 10
#: Keys that an example tells, by attention.
N_KEYS = 3


class HeadExample(NamedTuple):
    """A query that attends away from key 0, and the keys off it that get most."""

    sequence: int
    query: int
    away: float
    """1 − attention to key 0."""
    keys: tuple[int, ...]
    weights: tuple[float, ...]
    """Attention to each of `keys`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadExamples(Result):
    """A few queries of each head and bin, and how many there were."""

    tokens: Int64[np.ndarray, "sequence pos"]
    """The tokens that were read; of padded sequences, each moved to the left."""
    counts: Int64[np.ndarray, "layer head bin"]
    """Queries from the third of each sequence on, by attention away from key 0."""
    sequence: Int64[np.ndarray, "layer head bin example"]
    """Row of `tokens`; −1 where a bin has fewer queries."""
    query: Int64[np.ndarray, "layer head bin example"]
    away: Float32[np.ndarray, "layer head bin example"]
    keys: Int64[np.ndarray, "layer head bin example key"]
    """The keys by attention, key 0 aside."""
    weights: Float32[np.ndarray, "layer head bin example key"]

    @property
    def headline(self) -> str:
        n = int((self.sequence >= 0).sum())
        return f"{n} examples of {np.prod(self.counts.shape[:2])} heads from {self.tokens.size:,} tokens"

    def of(self, head: HeadLike, bin: int | None = None) -> tuple[HeadExample, ...]:
        """Return the examples of a head, of one bin or from all, those that attend away most first.

        Raises `ValueError` for another head or bin.
        """
        layer, number = as_head(head, self.counts.shape[:2])
        if bin is not None:
            require_whole("bin", bin, 0, N_BINS - 1)
        examples = []
        for place in range(N_BINS - 1, -1, -1) if bin is None else (bin,):
            index = (layer, number, place)
            for i in np.flatnonzero(self.sequence[index] >= 0):
                keys, weights = self.keys[(*index, i)], self.weights[(*index, i)]
                seen = keys >= 0
                examples.append(
                    HeadExample(
                        sequence=int(self.sequence[(*index, i)]), query=int(self.query[(*index, i)]),
                        away=float(self.away[(*index, i)]), keys=tuple(keys[seen].tolist()),
                        weights=tuple(weights[seen].tolist()),
                    )
                )  # fmt: skip
        return tuple(sorted(examples, key=lambda example: -example.away))

    def to_frame(self) -> pd.DataFrame:
        """Return one row an example: layer, head, bin, sequence, query, away, key, weight (of the key with most)."""
        import pandas as pd

        layer, head, place, example = np.nonzero(self.sequence >= 0)
        index = (layer, head, place, example)
        columns = {
            "layer": layer,
            "head": head,
            "bin": place,
            "sequence": self.sequence[index],
            "query": self.query[index],
        }
        columns |= {"away": self.away[index], "key": self.keys[index][:, 0], "weight": self.weights[index][:, 0]}
        return pd.DataFrame(columns)


class ExampleTally:
    """Give patterns batch by batch; `result` has the examples. Memory: `n_examples` of every head and bin."""

    def __init__(self, reader: HeadReader, tokens: Int64[Tensor, "sequence pos"], n_examples: int, seed: int) -> None:
        self.tokens, self.seed, self.n_examples = tokens, seed, n_examples
        shape = (reader.n_layers, reader.n_heads, N_BINS)
        self.counts = np.zeros(shape, dtype=np.int64)
        self.draws = np.full((*shape, n_examples), np.inf)
        self.sequence = np.full((*shape, n_examples), -1, dtype=np.int64)
        self.query = np.full((*shape, n_examples), -1, dtype=np.int64)
        self.away = np.zeros((*shape, n_examples), dtype=np.float32)
        self.keys = np.full((*shape, n_examples, N_KEYS), -1, dtype=np.int64)
        self.weights = np.zeros((*shape, n_examples, N_KEYS), dtype=np.float32)

    def add(self, layer: int, pattern: Float[Tensor, "batch head query key"], rows: Int64[Tensor, " batch"]) -> None:
        """Add the queries of the sequences of these numbers."""
        away = (1 - pattern[:, :, 2:, 0]).clamp(0, 1).cpu().numpy()  # [batch, head, query]
        bins = np.minimum((away * N_BINS).astype(np.int64), N_BINS - 1)
        drawn = np.stack(
            [np.random.default_rng((self.seed, layer, row)).random(away.shape[1:]) for row in rows.tolist()]
        )
        for head in range(away.shape[1]):
            self.counts[layer, head] += np.bincount(bins[:, head].ravel(), minlength=N_BINS)
        for i, head, place in self._smallest(layer, drawn, bins):
            index = (layer, head, int(bins[i, head, place]))
            slot = int(self.draws[index].argmax())
            if drawn[i, head, place] >= self.draws[(*index, slot)]:
                continue
            self.draws[(*index, slot)] = drawn[i, head, place]
            self.sequence[(*index, slot)], self.query[(*index, slot)] = int(rows[i]), place + 2
            self.away[(*index, slot)] = away[i, head, place]
            row = pattern[i, head, place + 2, 1:]
            weights, keys = row.topk(min(N_KEYS, len(row)))
            is_positive = weights > 0
            self.keys[(*index, slot)] = -1
            self.weights[(*index, slot)] = 0.0
            n = int(is_positive.sum())
            self.keys[(*index, slot)][:n] = keys[is_positive].cpu().numpy() + 1
            self.weights[(*index, slot)][:n] = weights[is_positive].cpu().numpy()

    def _smallest(self, layer: int, drawn: np.ndarray, bins: np.ndarray) -> list[tuple[int, int, int]]:
        """(sequence, head, query) of the `n_examples` smallest draws of each head and bin that may still be taken."""
        heads = np.broadcast_to(np.arange(drawn.shape[1])[:, None], drawn.shape)
        candidates = np.nonzero(drawn < self.draws[layer].max(-1)[heads, bins])
        reservoir = heads[candidates] * N_BINS + bins[candidates]
        order = np.lexsort((drawn[candidates], reservoir))
        first = np.searchsorted(reservoir[order], reservoir[order])  # where each reservoir begins
        smallest = order[np.arange(len(order)) - first < self.n_examples]
        return [(int(i), int(head), int(query)) for i, head, query in np.stack(candidates, 1)[smallest]]

    def result(self) -> HeadExamples:
        order = self.draws.argsort(-1, kind="stable")  # not the order of the slots, which batches decide
        return HeadExamples(
            tokens=self.tokens.numpy(),
            counts=self.counts,
            sequence=np.take_along_axis(self.sequence, order, -1),
            query=np.take_along_axis(self.query, order, -1),
            away=np.take_along_axis(self.away, order, -1),
            keys=np.take_along_axis(self.keys, order[..., None], -2),
            weights=np.take_along_axis(self.weights, order[..., None], -2),
        )
