"""The largest pairs of paths of a score, and what is proven of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from aotlens.conventions import head_name
from aotlens.paths.path import Path
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

#: A path to the query, and one to the keys.
PathPair: TypeAlias = tuple[Path, Path]


@dataclass(frozen=True, kw_only=True, eq=False)
class TopPairs(Result):
    """The largest pairs found, largest first, and what is proven of them. Terms in nats."""

    pairs: tuple[PathPair, ...]
    """Of each, the path to the query and the path to the keys."""
    values: tuple[float, ...]
    sentences: tuple[str, ...] = ()
    """Of each, what came to the key and what the query is."""
    formulas: tuple[str, ...] = ()
    """Of each, `ScoreExpansion.describe`."""
    score: float | None = None
    """The model's own score of the cell."""
    log_probability: float | None = None
    """`ScoreExpansion.log_probability`."""
    by: str
    total: float
    """What all pairs add together: the model's own contrast. Exact."""
    remainder: float
    """total − Σ values: what all other pairs add, with its sign."""
    n_proven: int
    """So many of the first ranks are proven: no pair anywhere is larger."""
    bound: float
    """No pair that is not here is larger than this: in size, for "pos" and "neg" in its own direction."""
    n_expanded: int
    """Nodes expanded, of both sides."""
    n_evaluated: int
    """Pairs whose two paths were both evaluated."""
    n_pairs: int
    """How many pairs there are."""

    @property
    def headline(self) -> str:
        return f"{self.n_proven} of {len(self.pairs)} ranks are exact; all other pairs add {self.remainder:+.3f} nats"

    @property
    def complete(self) -> bool:
        """Whether every rank is proven."""
        return self.n_proven == len(self.pairs)

    def to_frame(self) -> pd.DataFrame:
        """One row a pair: rank (from 1), pair (its sentence), formula, then source, source_position and heads of either
        side, nats, proven."""
        import pandas as pd

        columns: dict[str, object] = {"rank": range(1, len(self.pairs) + 1)}
        columns |= {"pair": self.sentences, "formula": self.formulas} if self.sentences else {}
        for side, name in enumerate(("query", "key")):
            paths = [pair[side] for pair in self.pairs]
            columns[f"{name}_source"] = [path.source for path in paths]
            positions = [path.source_position for path in paths]
            columns[f"{name}_source_position"] = pd.array(positions, dtype="Int64")
            columns[f"{name}_heads"] = [" ".join(map(head_name, path.heads)) for path in paths]
        columns["nats"] = self.values
        columns["proven"] = [rank < self.n_proven for rank in range(len(self.pairs))]
        return pd.DataFrame(columns)
