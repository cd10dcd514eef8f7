"""What sort of thing a row does, by its strings alone: punctuation, copying, morphology, a name, or other.

A row is the first of these that it is; `RULES` has the rules in words. They read strings, not meaning: a surname at a
sentence's beginning is no name here, and ` will` after `Will` is a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int64

from aotlens.trigrams.table import TrigramTable
from aotlens.trigrams.verdict import CONFIRMED, NOT_CONFIRMED, TOO_RARE

if TYPE_CHECKING:
    import pandas as pd

#: Each kind and its rule, in the order in which they are tried.
RULES: dict[str, str] = {
    "punctuation": "the out has no letter and no digit (a line break is punctuation too)",
    "copying": "the out is the source, whatever its case and the spaces around it",
    "morphology": "the out goes on with a word: it begins with a letter, a digit or an apostrophe, after a destination "
    "that ends in a letter or a digit",
    "name": "the out begins with a capital letter, a small one follows, and the destination ends no sentence or line",
    "other": "none of these",
}
KINDS = tuple(RULES)

#: What may come before a word that is capitalised only because it comes first.
_BEGINS_A_SENTENCE = frozenset(".!?:;\"'“”‘’()[]*_-—")
_APOSTROPHES = frozenset("'’")


def kind(source: str, destination: str, out: str) -> str:
    """The first of `KINDS` whose rule (`RULES`) holds for `[source] … [destination] → [out]`."""
    if not any(map(str.isalnum, out)):
        return "punctuation"
    word = out.strip()
    if word.casefold() == source.strip().casefold():
        return "copying"
    inside = out[0].isalnum() or (out[0] in _APOSTROPHES and len(out) > 1)
    if inside and destination[-1:].isalnum():
        return "morphology"
    before = destination.rstrip(" ")
    first = not before or before[-1].isspace() or before[-1] in _BEGINS_A_SENTENCE
    if word[:1].isupper() and word[1:2].islower() and not first:
        return "name"
    return "other"


def kinds(table: TrigramTable) -> tuple[str, ...]:
    """`kind` of every row. Raises `ValueError` for a model without a tokenizer, whose tokens are no strings."""
    if len(table) and not any(table.out_token):
        raise ValueError("kinds: expected tokens as strings, got none; this model has no tokenizer.")
    rows = zip(table.source_token, table.destination_token, table.out_token, strict=True)
    return tuple(kind(*row) for row in rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class KindCounts:
    """How many rows are of each kind, and what text says about them."""

    kinds: tuple[str, ...]
    verdicts: tuple[str, ...]
    """confirmed, not confirmed, too rare; or only `not checked`."""
    counts: Int64[np.ndarray, "kinds verdicts"]

    def to_frame(self) -> pd.DataFrame:
        """A row a kind, a column a verdict."""
        import pandas as pd

        return pd.DataFrame(self.counts, index=pd.Index(self.kinds, name="kind"), columns=list(self.verdicts))


#: Instead of a verdict, where there is no evidence.
NOT_CHECKED = "not checked"


def count_kinds(table: TrigramTable, verdict: tuple[str, ...] | None = None) -> KindCounts:
    """Count rows by `kind`, and by verdict where there are some (`Evidence.verdict`, as many as rows)."""
    verdicts = (NOT_CHECKED,) if verdict is None else (CONFIRMED, NOT_CONFIRMED, TOO_RARE)
    words = (NOT_CHECKED,) * len(table) if verdict is None else verdict
    if len(words) != len(table):
        raise ValueError(f"count_kinds: expected a verdict a row, {len(table)}, got {len(words)}.")
    counts = np.zeros((len(KINDS), len(verdicts)), dtype=np.int64)
    for one, word in zip(kinds(table), words, strict=True):
        counts[KINDS.index(one), verdicts.index(word)] += 1
    return KindCounts(kinds=KINDS, verdicts=verdicts, counts=counts)
