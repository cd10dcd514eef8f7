"""A table of skip-trigrams as a value; the kind of each row, and rows in groups.

**Kinds** are read from a row's tokens alone. In this order, the first that fits:

    copying       the out is the source but for case and spaces at its ends, or one begins the other and has 3
                  characters at least (' captain' → ' cap'; not ' he' → ' her')
    punctuation   the out has no letter and no digit; spaces and line ends are punctuation, copied or not
    names         the out begins with a capital letter, after a space or not
    morphology    the out goes on with a word: letters, and no space before them
    other         the rest

A rule of thumb, on text in which a word's first token begins with its space; it says nothing of why a head does it.

**Groups.** A head's best rows repeat themselves: the 500 best of a head that ends lines are one source and one out with
500 destinations. Folded, they are one row, and the next row says something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from aotlens.results import Result, data_frame

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class TrigramTable(Result):
    """Rows `[source] … [destination] → [out]` of one head, best first."""

    layer: int
    head: int
    source: Int64[np.ndarray, " rows"]
    """The ids of the tokens."""
    destination: Int64[np.ndarray, " rows"]
    out: Int64[np.ndarray, " rows"]
    source_token: tuple[str, ...]
    """The tokens' strings; empty strings for a model without a tokenizer."""
    destination_token: tuple[str, ...]
    out_token: tuple[str, ...]
    qk: Float64[np.ndarray, " rows"]
    """z: the score of destination for source above what it scores the background, nats."""
    attention: Float64[np.ndarray, " rows"]
    """The source's share against the background, 0 to 1."""
    ov: Float64[np.ndarray, " rows"]
    """The contribution of attending to the source to the out, above the mean over outs, logits."""
    upwards: Bool[np.ndarray, " rows"]
    """The claim of a row, about which text is asked: True, that the source makes the out likelier, as a positive effect
    does; False, less likely. Rows that are matched to others (`matched_random`) are tested in the same direction."""
    score: str | None
    """`"effect"`, `"sum"` or `"product"`; None where somebody chose the rows (`score_triples`, `matched_random`)."""
    largest: bool
    """False for the lowest scores: what the head suppresses."""
    distance: int | str | None
    n_background: int
    relative: str
    """The reasons why the numbers are not the model's own on every input; empty where the circuits are exact."""

    @property
    def headline(self) -> str:
        if not len(self):
            return f"head {self.layer}.{self.head}, no rows"
        words = f"[{self.source_token[0]}] … [{self.destination_token[0]}] → [{self.out_token[0]}]"
        return f"head {self.layer}.{self.head}: {words} first, effect {self.effect[0]:+.2f} logits"

    def __len__(self) -> int:
        return len(self.source)

    @property
    def effect(self) -> Float64[np.ndarray, " rows"]:
        """attention × ov: what the source adds to the out's logit, in logits."""
        return self.attention * self.ov

    @property
    def rank(self) -> Int64[np.ndarray, " rows"]:
        """1 for the first row."""
        return np.arange(1, len(self) + 1, dtype=np.int64)

    @property
    def exact(self) -> bool:
        """Whether `qk` and `ov` are terms of the model's own scores and logits, on any input."""
        return not self.relative

    def take(self, rows: Int64[np.ndarray, " taken"]) -> TrigramTable:
        """Return the table of these rows (0 is the first), in this order."""
        taken: dict[str, Any] = {}
        for field in fields(self):
            column = getattr(self, field.name)
            if isinstance(column, np.ndarray):
                taken[field.name] = column[rows]
            elif isinstance(column, tuple):
                taken[field.name] = tuple(column[row] for row in rows.tolist())
        return replace(self, **taken)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a trigram: rank, the tokens as strings and as ids, qk, attention, ov, effect."""
        return data_frame(
            {
                "rank": self.rank,
                "source": self.source_token,
                "destination": self.destination_token,
                "out": self.out_token,
                "source_id": self.source,
                "destination_id": self.destination,
                "out_id": self.out,
                "qk": self.qk,
                "attention": self.attention,
                "ov": self.ov,
                "effect": self.effect,
            }
        )


KINDS = ("copying", "punctuation", "names", "morphology", "other")
_SHORTEST_SHARED = 3  # characters that source and out must share to be one word


def kinds(table: TrigramTable) -> tuple[str, ...]:
    """Return the kind of each row (`KINDS`). Raises `ValueError` for a model without a tokenizer."""
    if len(table) and not any(table.out_token):
        raise ValueError("kinds: expected a table whose tokens have strings, got a model without a tokenizer.")
    return tuple(kind_of(source, out) for source, out in zip(table.source_token, table.out_token, strict=True))


def count_kinds(words: Sequence[str]) -> dict[str, int]:
    """Count the words of each kind, kinds that do not occur included."""
    return {kind: words.count(kind) for kind in KINDS}


def kind_of(source: str, out: str) -> str:
    """Return the kind of the row with this source and out."""
    before, after = source.strip().casefold(), out.strip().casefold()
    shorter = min(before, after, key=len)
    shares = len(shorter) >= _SHORTEST_SHARED and (before.startswith(after) or after.startswith(before))
    if before and (before == after or shares):
        return "copying"
    if not any(char.isalnum() for char in out):
        return "punctuation"
    begins = out[:1].isspace()
    if out.strip()[:1].isupper():
        return "names"
    return "morphology" if not begins and out[:1].isalpha() else "other"


#: The tokens of a row, in which others may differ from it.
TOKENS: tuple[str, ...] = ("source", "destination", "out")


@dataclass(frozen=True, kw_only=True, eq=False)
class FoldedTrigrams(Result):
    """Groups of rows of a table, each beneath its best row."""

    table: TrigramTable
    """All rows, best first."""
    over: tuple[str, ...]
    """The tokens in which a folded row may differ from the row that it is folded beneath, one at a time."""
    beneath: Int64[np.ndarray, " rows"]
    """The row (0 is the first) that each row is folded beneath; its own number where it stands for a group."""

    @property
    def headline(self) -> str:
        return f"{len(self.table):,} rows in {len(self):,} groups; {self.table.headline}"

    def __len__(self) -> int:
        """The number of groups."""
        return len(self.best)

    @property
    def best(self) -> Int64[np.ndarray, " groups"]:
        """The rows that stand for groups, in the table's order."""
        return np.flatnonzero(self.beneath == np.arange(len(self.beneath)))

    @property
    def groups(self) -> TrigramTable:
        """The best row of every group, as a table of its own."""
        return self.table.take(self.best)

    def members(self, row: int) -> Int64[np.ndarray, " members"]:
        """Return the rows of the group of `row`, itself first. Raises `ValueError` if the row does not stand for a
        group."""
        if not 0 <= row < len(self.beneath) or self.beneath[row] != row:
            raise ValueError(f"row {row}: expected one of the rows in `best`, which stand for groups.")
        return np.flatnonzero(self.beneath == row)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a group: its best row with that row's rank in the table, `rows`, the size of the group, and
        for every token in `over` the tokens that folded rows have in its place, best first (`other_sources`, …)."""
        best = self.best
        frame = self.table.to_frame().iloc[best].reset_index(drop=True)
        frame["rows"] = np.bincount(self.beneath, minlength=len(self.beneath))[best] if len(best) else best
        for name in self.over:
            ids, strings = getattr(self.table, name), getattr(self.table, f"{name}_token")
            others: dict[int, list[str]] = {int(row): [] for row in best}
            for row in np.flatnonzero(ids != ids[self.beneath]):
                others[int(self.beneath[row])].append(strings[row])
            frame[f"other_{name}s"] = [tuple(others[int(row)]) for row in best]
        return frame


def fold_rows(table: TrigramTable, over: str | Iterable[str] = ("source",)) -> FoldedTrigrams:
    """Fold every row beneath the first that differs from it in one token of `over` and stands for a group.

    Row by row from the best: a row that differs from no such row stands for a group itself. With `over="source"` these
    are the groups by (destination, out), with their sources folded; with `("source", "destination")` also rows with
    another destination for the same source and out are folded.

    A table of the k best triples (`skip_trigrams`) gives the same groups in the same order as any longer one would, as
    far as it goes: every group that is not listed begins after its last row. So do the rows that are left out of a
    group. Time and memory grow with rows. Raises `ValueError` for a name that is no token of a row, and for none.
    """
    names = (over,) if isinstance(over, str) else tuple(dict.fromkeys(over))
    unknown = [name for name in names if name not in TOKENS]
    if unknown or not names:
        raise ValueError(f"over={over!r}: expected one or more of {', '.join(map(repr, TOKENS))}.")
    rows = list(zip(table.source.tolist(), table.destination.tolist(), table.out.tolist(), strict=True))
    places = [TOKENS.index(name) for name in names]
    first: dict[tuple[int, tuple[int, ...]], int] = {}
    beneath = np.empty(len(rows), dtype=np.int64)
    for number, row in enumerate(rows):
        keys = [(place, row[:place] + row[place + 1 :]) for place in places]
        beneath[number] = min((first[key] for key in keys if key in first), default=number)
        if beneath[number] == number:
            first.update(dict.fromkeys(keys, number))
    return FoldedTrigrams(table=table, over=names, beneath=beneath)
