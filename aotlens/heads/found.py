"""The heads of an atlas that a search finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool

from aotlens.heads.atlas import Atlas
from aotlens.heads.head_search import rows_where
from aotlens.results import Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True, eq=False)
class FoundHeads(Result):
    """All heads of an atlas, and which of them were searched for."""

    atlas: Atlas
    search: str
    found: Bool[np.ndarray, " head"]
    """One for each head, in order."""

    @property
    def headline(self) -> str:
        n, total = int(self.found.sum()), len(self.found)
        heads = "head" if total == 1 else "heads"
        return f"{total} {heads}" if n == total else f"{n} of {total} {heads}"

    def to_frame(self) -> pd.DataFrame:
        """The rows of the atlas's table that are found."""
        return self.atlas.to_frame()[self.found]


def find_heads(atlas: Atlas, search: str = "") -> FoundHeads:
    """The heads that `search` finds, as `induction_random > 0.4 and layer = 1` or `previous token`; all for none.

    `aotlens.heads.head_search` says what can be written. Raises `ValueError` for what cannot be read.
    """
    try:
        return FoundHeads(atlas=atlas, search=search, found=rows_where(atlas.to_frame(), search))
    except ValueError as error:
        raise ValueError(f"Heads where {error}") from error
