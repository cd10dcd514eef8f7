"""A score as a table of products, query side by key side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jaxtyping import Float
from torch import Tensor

from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


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
    """What the groups are: numbers of heads, sources, or last heads and sources."""
    total: float
    """What all pairs add together: the model's own contrast."""
    unit: str = "nats"
    """What a sum is measured in, in words: nats above the average key."""

    @property
    def headline(self) -> str:
        query, key = divmod(int(self.values.abs().argmax()), len(self.names))
        largest, total = float(self.values[query, key]), float(self.values.sum())
        said = f"largest: {self.names[query]} × {self.names[key]}, {largest:+.3f} of {total:+.3f} nats in all"
        if abs(largest) <= abs(total):
            return said
        n, sizes = int((self.values != 0).sum()), float(self.values.abs().sum())
        return f"{said}; {n} terms cancel, whose sizes add up to {sizes:.3f}"

    def to_frame(self) -> pd.DataFrame:
        """One row a pair of groups, largest first: query, key, nats."""
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
