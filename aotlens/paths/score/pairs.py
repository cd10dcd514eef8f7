"""The largest pairs of paths of a score and what is proven of them; all pairs as a table of sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jaxtyping import Float
from torch import Tensor

from aotlens.conventions import head_name
from aotlens.paths.path import PathPair
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd

    from aotlens.paths.score.words import Piece


@dataclass(frozen=True, kw_only=True, eq=False)
class TopPairs(Result):
    """The largest pairs found, largest first, and what is proven of them. Terms in nats."""

    pairs: tuple[PathPair, ...]
    """The path to the query and the path to the keys, of each pair."""
    values: tuple[float, ...]
    descriptions: tuple[str, ...] = ()
    """Each pair in words: what came to the key and what the query is."""
    formulas: tuple[str, ...] = ()
    """The formula of each pair, `ScoreExpansion.describe`."""
    pieces: tuple[tuple[Piece, ...], ...] = ()
    """The parts of each sentence, in which heads are apart."""
    unit: str = ""
    """The unit of a term: nats above what the score is compared with."""
    score: float | None = None
    """The model's own score of the cell."""
    log_probability: float | None = None
    """`ScoreExpansion.log_probability`."""
    by: str
    total: float
    """The sum of all pairs: the model's own contrast. Exact."""
    remainder: float
    """total − Σ values: what all other pairs add, with its sign."""
    n_proven: int
    """The number of first ranks that are proven: no pair anywhere is larger."""
    bound: float
    """No pair that is not here is larger than this: in size, for "pos" and "neg" in its own direction."""
    n_expanded: int
    """Nodes expanded, of both sides."""
    n_evaluated: int
    """Pairs whose two paths were both evaluated."""
    n_pairs: int
    """The number of pairs."""

    @property
    def headline(self) -> str:
        return f"{self.n_proven} of {len(self.pairs)} ranks are exact; all other pairs add {self.remainder:+.3f} nats"

    @property
    def complete(self) -> bool:
        """Whether every rank is proven."""
        return self.n_proven == len(self.pairs)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a pair: rank (from 1), pair (its sentence), formula, then source, source_position and heads of
        either side, nats, proven."""
        import pandas as pd

        columns: dict[str, object] = {"rank": range(1, len(self.pairs) + 1)}
        columns |= {"pair": self.descriptions, "formula": self.formulas} if self.descriptions else {}
        for side, name in enumerate(("query", "key")):
            paths = [pair[side] for pair in self.pairs]
            columns[f"{name}_source"] = [path.source for path in paths]
            positions = [path.source_position for path in paths]
            columns[f"{name}_source_position"] = pd.array(positions, dtype="Int64")
            columns[f"{name}_heads"] = [" ".join(map(head_name, path.heads)) for path in paths]
        columns["nats"] = self.values
        columns["proven"] = [rank < self.n_proven for rank in range(len(self.pairs))]
        return pd.DataFrame(columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class PairSums(Result):
    """A partition of all pairs of paths by a group of each side: `values.sum()` is the contrast.

    Groups are numbers of heads, sources, or last heads ("0.3": every path whose last head it is, with all that it read)
    and, of the paths without heads, their sources.
    """

    names: tuple[str, ...]
    """The groups, the same on both sides."""
    values: Float[Tensor, "query_group key_group"]
    """Nats; the scale of scores is in them."""
    by: Literal["orders", "sources", "heads"]
    """The kind of the groups: numbers of heads, sources, or last heads and sources."""
    total: float
    """The sum of all pairs: the model's own contrast."""
    unit: str = "nats"
    """The unit of a sum, in words: nats above the average key."""

    @property
    def headline(self) -> str:
        query, key = divmod(int(self.values.abs().argmax()), len(self.names))
        largest, total = float(self.values[query, key]), float(self.values.sum())
        sentence = f"largest: {self.names[query]} × {self.names[key]}, {largest:+.3f} of {total:+.3f} nats in all"
        if abs(largest) <= abs(total):
            return sentence
        n, sizes = int((self.values != 0).sum()), float(self.values.abs().sum())
        return f"{sentence}; {n} terms cancel, whose sizes add up to {sizes:.3f}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a pair of groups, largest first: query, key, nats."""
        import pandas as pd

        n = len(self.names)
        frame = pd.DataFrame(
            {
                "query": [self.names[row] for row in range(n) for _ in range(n)],
                "key": [*self.names] * n,
                "nats": self.values.flatten().cpu().double().numpy(),
            }
        )
        return frame.sort_values("nats", key=abs, ascending=False, kind="stable", ignore_index=True)
