"""Random triples to hold a table against: the same frequencies of tokens, and nothing else in common."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float64, Int64

from aotlens.conventions import require_seed
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.models.traits import NOT_LINEAR
from aotlens.trigrams.find import Background, score_triples
from aotlens.trigrams.normaliser import background_distribution
from aotlens.trigrams.table import TrigramTable

_NEIGHBOURS, _FEWEST = 20, 5
_FACTOR = 1.5


def matched_random(
    model: AttentionOnlyTransformer,
    table: TrigramTable,
    n: int = 1000,
    *,
    seed: int = 0,
    background: Background = None,
) -> TrigramTable:
    """Return `n` random triples matched to `table`'s rows for token frequency, scored by its head.

    Each is drawn for a row of the table, taken at random: source, destination and out are each replaced, independently,
    by one of the 20 tokens nearest in log frequency (the token itself among them), those more than 1.5 times as
    frequent or as rare left out unless they are among the nearest 5. What the three have to do with each other is lost;
    how common they are is not. (The most frequent tokens of all have few neighbours, and rarer ones.) Rows stand in the
    order drawn, and text is asked of each what it is asked of the row that it was drawn for (`upwards`).

    Raises `ValueError` for an empty table, and where there are no counts.
    """
    require_ours(model, "matched_random", without=(*NOT_LINEAR, "score_cap"))
    if not len(table):
        raise ValueError("matched_random: expected a table with rows, got an empty one.")
    generator = np.random.default_rng(require_seed(seed))
    distribution = background_distribution(model, background)
    rows = generator.integers(0, len(table), n)
    source, destination, out = (
        _nearby(distribution, ids[rows], generator) for ids in (table.source, table.destination, table.out)
    )
    random = score_triples(
        model, (table.layer, table.head), source, destination, out, background=background, distance=table.distance
    )
    return replace(random, upwards=table.upwards[rows], largest=table.largest)


def _nearby(
    distribution: Float64[np.ndarray, " d_vocab"], ids: Int64[np.ndarray, " n"], generator: np.random.Generator
) -> Int64[np.ndarray, " n"]:
    n = len(distribution)
    order = np.argsort(-distribution, kind="stable")
    rank = np.empty(n, dtype=np.int64)
    rank[order] = np.arange(n)
    # Tokens that never occur count as half as frequent as the rarest that do.
    level = np.log(np.maximum(distribution, distribution[distribution > 0].min() / 2))[order]
    width = min(_NEIGHBOURS, n)
    around = rank[ids][:, None] + np.arange(1 - width, width)  # the nearest `width` are among these
    apart = np.abs(level[np.clip(around, 0, n - 1)] - level[rank[ids]][:, None])
    apart[(around < 0) | (around >= n)] = np.inf
    # Ties go to the nearer in rank, so that tokens of one frequency are not drawn from one side.
    beside = np.abs(np.arange(1 - width, width))
    nearest = np.lexsort((np.broadcast_to(beside, apart.shape), apart), axis=1)[:, :width]
    among = np.take_along_axis(apart, nearest, axis=1)
    few = min(_FEWEST, width)
    allowed = np.maximum((among <= np.log(_FACTOR)).sum(1), few)
    drawn = (generator.random(len(ids)) * allowed).astype(np.int64)
    return order[around[np.arange(len(ids)), nearest[np.arange(len(ids)), drawn]]]
