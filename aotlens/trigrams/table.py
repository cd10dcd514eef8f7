"""A table of skip-trigrams as a value."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from aotlens.results import Result

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
        import pandas as pd

        return pd.DataFrame(
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
