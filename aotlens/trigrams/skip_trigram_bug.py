"""The false trigrams that true ones force.

A head's score factors: f(source, destination) · f(source, out). So a head that says `keep … in → mind` and
`keep … at → bay` also says `keep … in → bay` and `keep … at → mind`; and no head can say the first two alone, since

    effect(in → bay) · effect(at → mind) = effect(in → mind) · effect(at → bay).

Elhage et al. 2021 call these skip-trigram bugs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float64, Int64

from aotlens.conventions import Progress
from aotlens.models import AttentionOnlyTransformer, require_ours
from aotlens.models.traits import NOT_LINEAR
from aotlens.results import Result, data_frame
from aotlens.trigrams.counting import Counts, TrigramCounter
from aotlens.trigrams.evidence import Evidence
from aotlens.trigrams.table import TrigramTable
from aotlens.trigrams.text import Text, windows
from aotlens.trigrams.verdict import CONFIRMED, Association, associate

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class SkipTrigramBugs(Result):
    """Pairs of rows (a, b → c), (a, b' → c'), each with one triple that they force: (a, b → c')."""

    table: TrigramTable
    first: Int64[np.ndarray, " bugs"]
    """The row that gives a and b, from 0."""
    second: Int64[np.ndarray, " bugs"]
    """The row that gives c'."""
    effect: Float64[np.ndarray, " bugs"]
    """The effect of the forced triple, logits: attention of the one row × ov of the other."""
    counts: Counts
    """The counts of the forced triples in the text."""
    association: Association
    """The association of the forced triples, tested like rows of a table (`aotlens.trigrams.verdict`), the false
    discovery rate among those listed."""
    first_counts: Int64[np.ndarray, " bugs"]
    """The count of the first row's own out after its pair."""
    second_counts: Int64[np.ndarray, " bugs"]

    @property
    def headline(self) -> str:
        return f"the text contradicts {self.false.sum()} of {len(self)} forced triples"

    @property
    def verdict(self) -> tuple[str, ...]:
        """The verdict on each forced triple: where it is `confirmed` the head is right about it, and it is no bug."""
        return self.association.verdicts

    @property
    def false(self) -> Bool[np.ndarray, " bugs"]:
        """Whether the text contradicts the forced triple: it has the pair often enough to be judged (not `too rare`),
        and the out follows it less often than it follows the destination anyway, within strata (lift_within below 1),
        or never; for a suppressed out, more often. A point estimate, not a test."""
        lift, seen = self.association.lift_within, ~self.association.too_rare
        upwards = self.table.upwards[self.second]
        with np.errstate(invalid="ignore"):
            return seen & np.where(upwards, (self.counts.pair_out == 0) | (lift < 1), lift > 1)

    def __len__(self) -> int:
        return len(self.first)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a forced triple, with the two rows that force it and the corpus counts of all three."""
        table, first, second = self.table, self.first, self.second

        def tokens(strings: tuple[str, ...], rows: np.ndarray) -> list[str]:
            return [strings[row] for row in rows]

        return data_frame(
            {
                "source": tokens(table.source_token, first),
                "destination": tokens(table.destination_token, first),
                "out": tokens(table.out_token, first),
                "followed": self.first_counts,
                "other_destination": tokens(table.destination_token, second),
                "other_out": tokens(table.out_token, second),
                "other_followed": self.second_counts,
                "source_id": table.source[first],
                "destination_id": table.destination[first],
                "out_id": table.out[first],
                "other_destination_id": table.destination[second],
                "other_out_id": table.out[second],
                "forced_effect": self.effect,
                "forced_occurrences": self.counts.pair,
                "forced_followed": self.counts.pair_out,
                "forced_lift": self.association.lift,
                "forced_lift_within": self.association.lift_within,
                "forced_verdict": list(self.verdict),
                "false": self.false,
            }
        )


def skip_trigram_bugs(
    model: AttentionOnlyTransformer,
    found: Evidence,
    corpus: Text,
    *,
    max_tokens: int | None = 1_000_000,
    documents: Collection[str] | None = None,
    only_confirmed: bool = True,
    limit: int = 10_000,
    progress: Progress | None = None,
) -> SkipTrigramBugs:
    """Return the triples that pairs of rows with one source force, largest forced effect first, counted in the text.

    Of rows (a, b → c) and (a, b' → c') with b ≠ b' and c ≠ c', both forced triples are listed, (a, b → c') and
    (a, b' → c), except those that are confirmed rows of the table themselves. `only_confirmed` takes pairs of confirmed
    rows: a truth that the head cannot tell without the falsehood. At most `limit` are counted.
    `progress(tokens, all)` is called after each batch.

    Time: a pass of counting, no forward passes. Raises `ValueError` for text that the model cannot read.
    """
    require_ours(model, "skip_trigram_bugs", without=(*NOT_LINEAR, "score_cap"))
    table = found.table
    rows = np.arange(len(table))
    if only_confirmed:
        rows = rows[np.array(found.verdict, dtype=object)[rows] == CONFIRMED]
    confirmed = {
        (int(table.source[r]), int(table.destination[r]), int(table.out[r]))
        for r in range(len(table))
        if found.verdict[r] == CONFIRMED
    }
    first, second = _pairs(table, rows, confirmed, limit)
    ids = (table.source[first], table.destination[first], table.out[second])
    assert model.cfg.d_vocab is not None
    counter = TrigramCounter(*ids, model.cfg.d_vocab)
    if len(first):
        for batch in windows(
            model, corpus, batch_size=32, max_tokens=max_tokens, documents=documents, progress=progress
        ):
            counter.add(batch)
    counts = counter.counts()
    return SkipTrigramBugs(
        table=table,
        first=first,
        second=second,
        effect=table.attention[first] * table.ov[second],
        counts=counts,
        association=associate(counts.strata, upwards=table.upwards[second]),
        first_counts=found.counts.pair_out[first],
        second_counts=found.counts.pair_out[second],
    )


def _pairs(
    table: TrigramTable, rows: np.ndarray, known: set[tuple[int, int, int]], limit: int
) -> tuple[np.ndarray, np.ndarray]:
    """(row of a and b, row of c') of every forced triple once, by the largest |forced effect|."""
    best: dict[tuple[int, int, int], tuple[int, int]] = {}
    by_source: dict[int, list[int]] = {}
    for row in rows.tolist():
        by_source.setdefault(int(table.source[row]), []).append(row)
    for source, group in by_source.items():
        for i in group:
            for j in group:
                destination, out = int(table.destination[i]), int(table.out[j])
                different = destination != table.destination[j] and out != table.out[i]
                if different and (source, destination, out) not in known:
                    best.setdefault((source, destination, out), (i, j))
    first, second = np.array(list(best.values()), dtype=np.int64).reshape(-1, 2).T
    order = np.argsort(-np.abs(table.attention[first] * table.ov[second]), kind="stable")[:limit]
    return first[order], second[order]
