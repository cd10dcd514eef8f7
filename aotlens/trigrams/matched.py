"""Random triples to hold a table against: the same frequencies of tokens, and nothing else in common."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64

from aotlens.models import AttentionOnlyTransformer
from aotlens.trigrams.find import Background, score_triples
from aotlens.trigrams.normaliser import background_distribution
from aotlens.trigrams.table import TrigramTable

_NEIGHBOURS = 20


def matched_random(
    model: AttentionOnlyTransformer,
    table: TrigramTable,
    n: int = 1000,
    *,
    seed: int = 0,
    background: Background = None,
) -> TrigramTable:
    """`n` random triples matched to `table`'s rows for token frequency, scored by its head.

    Each is drawn for a row of the table, taken at random: source, destination and out are each replaced, independently,
    by one of the 20 tokens nearest in rank of frequency (the token itself among them). What the three have to do with
    each other is lost; how common they are is not. Rows stand in the order drawn.

    Raises `ValueError` for an empty table, and where there are no counts.
    """
    if not len(table):
        raise ValueError("matched_random: expected a table with rows, got an empty one.")
    generator = np.random.default_rng(seed)
    distribution = background_distribution(model, background)
    rows = generator.integers(0, len(table), n)
    source, destination, out = (
        _nearby(distribution, ids[rows], generator) for ids in (table.source, table.destination, table.out)
    )
    return score_triples(
        model, table.layer, table.head, source, destination, out, background=background, distance=table.distance
    )


def _nearby(
    distribution: Float64[np.ndarray, " d_vocab"], ids: Int64[np.ndarray, " n"], generator: np.random.Generator
) -> Int64[np.ndarray, " n"]:
    order = np.argsort(-distribution, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    width = min(_NEIGHBOURS, len(order))
    lowest = np.clip(rank[ids] - width // 2, 0, len(order) - width)
    return order[lowest + generator.integers(0, width, len(ids))]
