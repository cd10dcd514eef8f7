"""The meaning of a circuit's rows or columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from aotlens.conventions import Head

SideName = Literal["tokens", "positions", "bias", "residual", "prompt", "head", "logits"]


@dataclass(frozen=True, kw_only=True)
class Side:
    """The meaning of a circuit's rows (or columns).

    `name` is what was asked for. `index` says what row i is: `"token"` i of the vocabulary, `"position"` i, the one
    `"bias"`, `"direction"` i of the residual stream, or `"class"` i of a classifier. `through` names the other head
    whose output (as a query, key or value) or input (as an output) this side is. `undivided` marks positions that a
    norm divides by a scale which is not known here: they are divided by 1, and cannot be compared with tokens. A part
    of a circuit names in `ids` the rows that it has; None means all of them, in order.
    """

    name: SideName
    index: Literal["token", "position", "bias", "direction", "class"]
    through: Head | None = None
    undivided: bool = False
    ids: tuple[int, ...] | None = None

    def ids_of(self, places: Sequence[int]) -> list[int]:
        """Return the token ids, positions, directions or classes at these places."""
        return list(places) if self.ids is None else [self.ids[place] for place in places]

    def __str__(self) -> str:
        name = self.name if self.through is None else f"{self.index}s through {self.through[0]}.{self.through[1]}"
        return f"{name}, undivided" if self.undivided else name
